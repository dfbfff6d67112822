"""Make the PyPI builds of torchvision and torchaudio import beside a CPU torch.

Both are CUDA builds whose compiled parts cannot be loaded here. ComfyUI needs only their Python parts: torchaudio
works once its libraries are gone, torchvision once the two operators that it describes at import have a schema.
"""

import sysconfig
from pathlib import Path

site = Path(sysconfig.get_paths()["purelib"])
for library in (site / "torchaudio" / "lib").glob("*.so"):
    library.unlink()

ANCHOR = "from . import extension  # usort:skip  # noqa: F401\n"
SCHEMAS = """if not extension._has_ops():
    _cpu_operators = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _cpu_operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
module = site / "torchvision" / "__init__.py"
source = module.read_text()
if SCHEMAS not in source:
    if ANCHOR not in source:
        raise SystemExit(f"{module} has changed and no longer imports its extension where expected: adapt {__file__}")
    module.write_text(source.replace(ANCHOR, ANCHOR + SCHEMAS, 1))
