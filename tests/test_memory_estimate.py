"""The estimate against what drawing really keeps alive, every family: scaled-down models on the CPU."""

import sys
from pathlib import Path

import pytest
import torch
from helpers_janus import tiny_janus

sys.path.insert(0, str(Path(__file__).parent / "targets"))

from families import FAMILIES

from csd_pipeline.decoding import Warp, decode
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.memory_estimate import LiveBytes, bytes_of_cache, estimate
from csd_pipeline.pixels import decode_pixels
from csd_pipeline.relaxation import Exact
from csd_pipeline.targets import PromptBatch, adapter_for

IMAGES, WINDOW, PROMPT = 3, 8, 7
NAMES = ["chameleon", "lumina-wide", "llamagen-text", "llamagen-class", "emu3", "janus"]


def adapter_of(name: str, dtype: torch.dtype = torch.float32):
    if name == "janus":
        return adapter_for(tiny_janus().to(dtype))
    part = FAMILIES[name]()
    return adapter_for(part.model.to(dtype), part.size)


@pytest.mark.parametrize(("dtype", "guidance"), [(torch.float32, 3.0), (torch.bfloat16, 1.0)])
@pytest.mark.parametrize("name", NAMES)
def test_weights_and_cache_to_the_byte_the_moments_of_a_run_within_a_sixth(name, dtype, guidance):
    adapter = adapter_of(name, dtype)
    method = {"warp": Warp(guidance, 1.0), "drafter": JacobiDrafter(WINDOW, "coupled"), "relaxation": Exact()}
    weights = sum(p.numel() * p.element_size() for p in adapter.model.parameters())
    ids = torch.randint(2, 9, (IMAGES, min(PROMPT, adapter.prompt_room)))
    with torch.no_grad(), LiveBytes() as drawing:
        session = adapter.open(PromptBatch(*(ids, torch.ones_like(ids)) * (2 if guidance > 1 else 1)), WINDOW)
        tokens = decode(session, adapter, seeds=[1, 2, 3], **method).tokens
    with torch.no_grad(), LiveBytes() as pixels:
        decode_pixels(adapter, tokens)
    found = estimate(adapter, dtype=dtype, images=IMAGES, window=WINDOW, prompt=PROMPT, **method)
    assert found.weights == weights
    assert found.cache == bytes_of_cache(session) > 0
    assert 5 / 6 < (found.cache + found.drawing) / drawing.peak < 7 / 6
    assert 5 / 6 < found.pixels / pixels.peak < 7 / 6
    assert found.peak == weights + max(found.cache + found.drawing, found.pixels)


def test_live_bytes_counts_storages_while_they_live():
    with LiveBytes() as live:
        first = torch.zeros(1000)
        view = first[10:]
        second = torch.zeros(500)
        del second, first
        assert live.now == 4000  # the view keeps the whole of it
        del view
        assert live.now == 0
    assert live.peak == 6000


def test_more_pictures_a_wider_window_and_a_longer_prompt_take_more():
    def peak(**changes):
        numbers = {"dtype": torch.float32, "images": 2, "window": 4, "prompt": 8} | changes
        found = estimate(adapter_of("chameleon"), **numbers)
        return found.cache + found.drawing

    assert peak(images=4) > 1.5 * peak()
    assert peak(window=4) > peak(window=2)
    assert peak(prompt=64) > peak()
