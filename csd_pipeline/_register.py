"""Run a function once another package has been imported, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType


def when_imported(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call ``action(module)`` now if ``name`` is imported, else right after its first import."""
    if name in sys.modules:
        action(sys.modules[name])
    else:
        sys.meta_path.insert(0, _ImportWatcher(name, action))


class _ImportWatcher(importlib.abc.MetaPathFinder):
    """Finds nothing itself; wraps the loader the other finders give for one module."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]):
        self.name, self.action = name, action

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load, action = spec.loader.exec_module, self.action

            def exec_module(module: ModuleType) -> None:
                load(module)
                action(sys.modules[fullname])  # a lazy package replaces itself in sys.modules while loading

            spec.loader.exec_module = exec_module
        return spec
