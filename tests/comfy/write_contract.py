"""Freeze the nodes as they are now into contract.json; refuses where that breaks what is frozen already.

CSD_COMFY_HOME=DIR DIR/venv/bin/python tests/comfy/write_contract.py
"""

import json
import tempfile
from pathlib import Path

from contract import CONTRACT, describe, differences
from server import start

with tempfile.TemporaryDirectory() as base:
    server = start(Path(base))
    try:
        now = describe(server.object_info())
    finally:
        server.stop()
frozen = json.loads(CONTRACT.read_text()) if CONTRACT.is_file() else {}
broken = [line for line in differences(frozen, now) if "not frozen yet" not in line]
if broken:
    raise SystemExit("\n".join(broken))
CONTRACT.write_text(json.dumps(now, indent=1) + "\n")
print(f"{len(now)} nodes frozen")
