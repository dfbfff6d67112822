"""What a decoding run reports about each image: forwards, tokens per step, drift, and maps on the token grid."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .state import DecodingState

if TYPE_CHECKING:
    from csd_pipeline.targets.base import Grid


@dataclass
class Trace:
    """Report of one image. Counts exclude the prefill unless said.

    Args:
        seed: 64-bit seed of the image.
        tokens: N, image tokens drawn.
        nfe: target forwards this image took part in.
        prefill_nfe: target forwards spent on the prompt.
        wasted_nfe: forwards that ran on this image after it was finished, before the host knew (not in ``nfe``).
        accepted: accepted drafts of every pass, in order.
        drift: total variation spent in the whole image, summed over positions; 0 in every run of an exact method.
        seconds: wall-clock time from the start of the batch until this image was finished.
        maps: [rows, columns] float32 tensors over the picture codes, line marks left out: ``entropy`` (nats),
            ``acceptance`` (probability with which the draft tested there was accepted, NaN where none was),
            ``passes`` (in which pass the token was committed), ``drift`` (total variation spent).
    """

    seed: int
    tokens: int = 0
    nfe: int = 0
    prefill_nfe: int = 1
    wasted_nfe: int = 0
    accepted: list[int] = field(default_factory=list)
    drift: float = 0.0
    seconds: float = 0.0
    maps: dict[str, Tensor] = field(default_factory=dict, repr=False)

    @property
    def tokens_per_step(self) -> float:
        """Tokens per target forward, the prefill and its one token apart; 1 for plain decoding."""
        return (self.tokens - self.prefill_nfe) / max(self.nfe, 1)

    @property
    def accepted_per_step(self) -> float:
        return sum(self.accepted) / max(len(self.accepted), 1)

    @property
    def accepted_histogram(self) -> list[int]:
        """Entry k: how many passes accepted exactly k drafts."""
        histogram = [0] * (max(self.accepted, default=0) + 1)
        for count in self.accepted:
            histogram[count] += 1
        return histogram

    @property
    def drift_per_token(self) -> float:
        return self.drift / max(self.tokens, 1)

    def to_dict(self) -> dict:
        """Numbers only (no maps), ready for JSON."""
        return {
            "seed": self.seed,
            "nfe": self.nfe,
            "prefill_nfe": self.prefill_nfe,
            "wasted_nfe": self.wasted_nfe,
            "tokens": self.tokens,
            "tokens_per_step": round(self.tokens_per_step, 4),
            "accepted_per_step": round(self.accepted_per_step, 4),
            "accepted_histogram": self.accepted_histogram,
            "drift": round(self.drift, 6),
            "drift_per_token": round(self.drift_per_token, 6),
            "seconds": round(self.seconds, 4),
        }


class TraceRecorder:
    """Collects tokens, maps and traces of all images of a call; tensors stay on the device until :meth:`finish`.

    Args:
        seeds: seed of every image.
        tokens: N.
        device: of tokens and maps.
        maps: entropy, acceptance and pass maps are recorded too (drift always is).
    """

    def __init__(self, seeds: list[int], tokens: int, device, maps: bool):
        self.traces = [Trace(seed=seed) for seed in seeds]
        self.record_maps, self.started = maps, time.perf_counter()
        self.tokens = torch.zeros(len(seeds), tokens, dtype=torch.int64, device=device)
        names = ("drift", "entropy", "acceptance", "passes") if maps else ("drift",)
        self.maps = {name: torch.zeros(len(seeds), tokens, device=device) for name in names}

    def collect(self, image: int, slot: int, count: int, state: DecodingState) -> None:
        """Copy the ``count`` tokens that the image in ``slot`` has, and its maps as far as that; 0 stands behind."""
        for mine, theirs in ((self.tokens, state.tokens), *((self.maps[name], state.maps[name]) for name in self.maps)):
            mine[image, :count].copy_(theirs[slot, :count])
            mine[image, count:].zero_()

    def advance(self, image: int, before: int, after: int) -> None:
        """Host-side counts of one pass of one image."""
        trace = self.traces[image]
        if before > 0:  # the first token comes from the prefill
            trace.nfe += 1
            trace.accepted.append(after - before - 1)
        trace.tokens = after
        trace.seconds = time.perf_counter() - self.started

    def finish(self, grid: Grid) -> list[Trace]:
        maps = {name: values.cpu() for name, values in self.maps.items()}
        drift = maps["drift"].sum(1, dtype=torch.float64).tolist()
        for i, trace in enumerate(self.traces):
            trace.drift = drift[i]
            if self.record_maps:
                trace.maps = {name: grid.picture(values[i]) for name, values in maps.items()}
        return self.traces
