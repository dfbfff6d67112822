"""The decoding loop and everything it is made of."""

from .captured_pass import CapturedPass
from .compiled_pass import CompiledPass
from .loop import DecodingResult, NonFiniteLogits, Progress, decode
from .noise import IndexedNoise, Purpose, seed_words
from .one_pass import RunPass, WatchedPass, window_pass
from .sampling import Warp
from .trace import Trace
from .window import Window

__all__ = [
    "CapturedPass",
    "CompiledPass",
    "DecodingResult",
    "IndexedNoise",
    "NonFiniteLogits",
    "Progress",
    "Purpose",
    "RunPass",
    "Trace",
    "Warp",
    "WatchedPass",
    "Window",
    "decode",
    "seed_words",
    "window_pass",
]
