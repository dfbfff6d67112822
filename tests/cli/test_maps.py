import numpy as np
import pytest
import torch
from PIL import Image

from csd_pipeline import Trace
from csd_pipeline.evaluation.maps import SCALES, colours, overlay, sheet

PICTURE = Image.effect_mandelbrot((64, 64), (-2, -1.5, 1, 1.5), 60).convert("RGB")


def trace_of(**maps) -> Trace:
    return Trace(seed=3, tokens=16, nfe=5, drift=0.5, maps=maps)


def random_maps() -> dict:
    maps = {name: torch.rand(4, 4) for name in SCALES}
    maps["passes"] = torch.arange(16.0).view(4, 4) + 1
    maps["acceptance"][0, 0] = torch.nan
    return maps


def test_colours_get_steadily_brighter():
    brightness = colours(np.linspace(0, 1, 64)).astype(float) @ [0.299, 0.587, 0.114]
    assert (np.diff(brightness) > 0).all()


def test_overlay_has_one_block_per_token_and_shows_the_picture_where_nothing_is_known():
    values = np.array([[0.0, 1.0], [np.nan, 0.5]])
    flat = np.asarray(overlay(Image.new("RGB", (8, 8), (90, 90, 90)), values, size=(32, 32)))
    blocks = flat.reshape(2, 16, 2, 16, 3).swapaxes(1, 2).reshape(4, -1, 3)
    assert all((block == block[0]).all() for block in blocks)
    assert blocks[2, 0, 0] == blocks[2, 0, 1] == blocks[2, 0, 2]  # grey
    assert blocks[1, 0].sum() > blocks[3, 0].sum() > blocks[0, 0].sum()
    assert overlay(PICTURE, values).size == PICTURE.size


def test_sheet_has_a_panel_for_the_picture_and_each_map():
    maps = random_maps()
    page = sheet(PICTURE, trace_of(**maps))
    alone = sheet(PICTURE, trace_of(entropy=maps["entropy"]))
    panel = (page.width - alone.width) // 3  # three panels more
    assert page.height == alone.height > 288
    assert panel > 288
    panels = [np.asarray(page.crop((i * panel + 24, 56, i * panel + 312, 344))) for i in range(5)]
    for i in range(5):
        assert all((panels[i] != panels[j]).any() for j in range(i))


def test_each_map_changes_its_own_panel_only():
    maps = random_maps()
    page = np.asarray(sheet(PICTURE, trace_of(**maps)), dtype=int)
    changed = np.asarray(sheet(PICTURE, trace_of(**maps | {"passes": maps["passes"].flip(0)})), dtype=int)
    columns = np.flatnonzero((page != changed).any((0, 2)))
    assert page.shape[1] * 3 / 5 < columns.min() < columns.max() < page.shape[1] * 4 / 5


def test_large_pictures_keep_their_size_and_constant_maps_need_no_bar():
    maps = {name: torch.zeros(4, 4) for name in SCALES}
    page = sheet(PICTURE.resize((384, 384)), trace_of(**maps))
    assert page.width == 5 * (384 + 24) + 24
    assert page.height > 384


def test_trace_without_maps_is_refused():
    with pytest.raises(ValueError, match="record_maps=True"):
        sheet(PICTURE, trace_of(drift=torch.zeros(4, 4)))
