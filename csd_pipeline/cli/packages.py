"""The packages this one needs: installed, new enough, and really importable by this interpreter?"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

DISTRIBUTION = "csd-pipeline"
_MODULES = {"pillow": "PIL"}
_PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
# asked for even where no list of requirements can be found
_NEEDED = ("torch", "diffusers", "transformers", "accelerate", "safetensors", "numpy", "pillow", "click")


@dataclass(frozen=True)
class Package:
    """What was found of one package.

    Args:
        bound: ``>=2.4``, or empty.
        version: of its installed files; None when there are none.
        error: the true error of importing it, or None.
        shadow: path of another module of that name that is imported in its place, or None.
    """

    name: str
    bound: str
    version: str | None
    error: str | None
    shadow: str | None = None

    @property
    def requirement(self) -> str:
        return self.name + self.bound

    @property
    def too_old(self) -> bool:
        return bool(self.bound and self.version) and _numbers(self.version) < _numbers(self.bound)


def pip_command(*arguments: str) -> str:
    """A pip call of the very interpreter that runs this."""
    return " ".join((f'"{sys.executable}"' if " " in sys.executable else sys.executable, "-m", "pip", *arguments))


def lower_bounds() -> dict[str, str]:
    """``{package: ">=version"}`` as pyproject.toml states it, from a checkout or from the installed package."""
    lines: list[str] = []
    if _PROJECT.is_file():
        text = _PROJECT.read_text(encoding="utf-8")
        block = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
        lines = re.findall(r'"([^"]+)"', block.group(1)) if block else []
    if not lines:
        try:
            lines = [line for line in importlib.metadata.requires(DISTRIBUTION) or [] if "extra ==" not in line]
        except importlib.metadata.PackageNotFoundError:
            lines = []
    found = dict.fromkeys(_NEEDED, "")
    for line in lines:
        name, bound = re.match(r"([\w.-]+)\s*(>=\s*[\w.]+)?", line).groups()
        found[name.lower()] = (bound or "").replace(" ", "")
    return found


def inspect_packages() -> list[Package]:
    """Look at every required package, importing each."""
    return [_inspect(name, bound) for name, bound in lower_bounds().items()]


def _inspect(name: str, bound: str) -> Package:
    module = _MODULES.get(name, name.replace("-", "_"))
    try:
        distribution = importlib.metadata.distribution(name)
        version, home = distribution.version, Path(str(distribution.locate_file(""))).resolve()
    except importlib.metadata.PackageNotFoundError:
        version, home = None, None
    error = _import_error(module)
    return Package(name, bound, version, error, _shadow(module, home) if error and home else None)


def _import_error(module: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    except Exception as error:  # a broken package may raise anything; the user needs to see what
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None


def _shadow(module: str, home: Path) -> str | None:
    """The file that is imported instead of the installed package, if there is one."""
    try:
        origin = importlib.util.find_spec(module).origin
    except (ImportError, AttributeError, ValueError):
        return None
    if not origin:
        return None
    return None if home in Path(origin).resolve().parents else origin


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of ``>=2.4`` or ``2.13.0+cpu``."""
    return tuple(int(part) for part in re.match(r"[>=\s]*(\d+(?:\.\d+)*)", version).group(1).split("."))
