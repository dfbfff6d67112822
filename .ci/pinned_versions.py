"""Ends with an error unless this interpreter imports the very versions that the constraints file argv[1] pins."""

import importlib.metadata
import re
import sys
from pathlib import Path

PINS = re.findall(r"^([\w-]+)==([\w.]+)", Path(sys.argv[1]).read_text(encoding="utf-8"), re.MULTILINE)

if not PINS:
    sys.exit(f"{sys.argv[1]} pins no version")
for name, version in PINS:
    distribution = importlib.metadata.distribution(name)
    module = importlib.import_module({"pillow": "PIL"}.get(name, name))
    home = Path(distribution.locate_file("")).resolve()
    if distribution.version != version or home not in Path(module.__file__).resolve().parents:
        sys.exit(f"{name}: {sys.argv[1]} pins {version}, found {distribution.version}, imported from {module.__file__}")
    print(f"{name} {version}")
