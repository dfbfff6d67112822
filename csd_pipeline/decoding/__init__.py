"""The decoding loop and everything it is made of."""

from .loop import DecodingResult, NonFiniteLogits, Progress, decode
from .noise import IndexedNoise, Purpose, seed_words
from .sampling import Warp
from .trace import Trace
from .window import Window

__all__ = [
    "DecodingResult",
    "IndexedNoise",
    "NonFiniteLogits",
    "Progress",
    "Purpose",
    "Trace",
    "Warp",
    "Window",
    "decode",
    "seed_words",
]
