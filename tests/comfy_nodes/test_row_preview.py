"""The growing picture: only committed rows, at most four a second, never a large share of the run."""

import numpy as np
import pytest
import torch

from comfy_nodes.preview import RowPreview
from csd_pipeline.targets import adapter_for


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def adapter(embedded):
    return adapter_for(embedded.target)


@pytest.fixture
def tokens(adapter):
    return torch.randint(adapter.vocabulary, (3, adapter.grid.tokens), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rows", [1, 5, 16])
def test_decoded_rows_are_those_of_the_whole_picture_but_for_the_lower_edge(adapter, tokens, rows):
    height = adapter.image_size[0] * rows // adapter.grid.rows
    with torch.no_grad():
        part, whole = adapter.decode_rows(tokens, rows), adapter.decode(tokens)
    assert part.shape == (3, 3, height, adapter.image_size[1])
    if rows == adapter.grid.rows:
        torch.testing.assert_close(part, whole)
    base = type(adapter).__mro__[1].decode_rows(adapter, tokens, rows)
    torch.testing.assert_close(base, whole[:, :, :height])


def test_rows_to_come_are_blank_and_images_stand_side_by_side(adapter, tokens):
    columns, (height, width) = adapter.grid.columns, adapter.image_size
    picture = RowPreview(adapter)(tokens, [columns * 8 + 3, columns * 2, 5])
    pixels = np.asarray(picture)
    assert pixels.shape == (2 * height, 2 * width, 3)
    first, second, third = pixels[:height, :width], pixels[:height, width:], pixels[height:, :width]
    assert first[: height // 2].std() > 0 and (first[height // 2 :] == 64).all()
    assert second[: height // 8].std() > 0 and (second[height // 8 :] == 64).all()
    assert (third == 64).all()


def test_nothing_before_the_first_row_or_without_a_new_one(adapter, tokens):
    clock = Clock()
    preview = RowPreview(adapter, clock)
    assert preview(tokens, [15, 3, 2]) is None
    assert preview(tokens, [16, 3, 2]) is not None
    clock.now += 10
    assert preview(tokens, [31, 3, 2]) is None
    assert preview(tokens, [32, 3, 2]) is not None


def test_the_finished_picture_is_shown_however_soon_it_comes(adapter, tokens):
    preview, whole = RowPreview(adapter, Clock()), adapter.grid.tokens
    assert preview(tokens[:2], [whole - 1, 16]) is not None
    assert preview(tokens[:2], [whole, whole - 1]) is None
    finished = np.asarray(preview(tokens[:2], [whole, whole])).astype(int)
    with torch.no_grad():
        expected = (adapter.decode(tokens[:2]).clamp(-1, 1) + 1) * 127.5
    sides = np.concatenate(list(expected.round().permute(0, 2, 3, 1).numpy()), axis=1)
    assert np.abs(finished - sides).max() <= 1
    assert preview(tokens[:2], [whole, whole]) is None


@pytest.mark.parametrize(("cost", "pause"), [(0.0, 0.25), (0.02, 0.25), (1.0, 5.0)])
def test_previews_pause_in_proportion_to_what_they_cost(adapter, tokens, cost, pause, monkeypatch):
    clock = Clock()
    preview = RowPreview(adapter, clock)
    draw = preview._draw

    def costly(*args):
        clock.now += cost
        return draw(*args)

    monkeypatch.setattr(preview, "_draw", costly)
    assert preview(tokens, [16, 16, 16]) is not None
    started = clock.now - cost
    clock.now = started + pause - 0.001
    assert preview(tokens, [32, 32, 32]) is None
    clock.now = started + pause + 0.001
    assert preview(tokens, [32, 32, 32]) is not None
