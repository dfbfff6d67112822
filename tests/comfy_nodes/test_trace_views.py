"""A trace as pictures and text."""

import numpy as np
import pytest
import torch
from PIL import Image

from comfy_nodes.pictures import to_images, to_pictures
from comfy_nodes.trace_views import check_images, map_pictures, plot, report
from csd_pipeline import Trace
from csd_pipeline.evaluation.maps import colours


@pytest.mark.parametrize("name", ["entropy", "acceptance", "drift"])
def test_maps_have_the_pictures_size_or_one_block_a_token(drawn, name):
    with_picture = map_pictures(name, drawn.traces, drawn.images)
    assert [picture.size for picture in with_picture] == [image.size for image in drawn.images]
    rows, columns = drawn.traces[0].maps[name].shape
    assert map_pictures(name, drawn.traces)[0].size == (16 * columns, 16 * rows)


def test_a_batch_shares_one_colour_scale():
    low, high = (Trace(seed=0, maps={"drift": torch.full((2, 2), value)}) for value in (0.2, 0.4))
    one, two = (np.asarray(picture)[0, 0] for picture in map_pictures("drift", [low, high]))
    grey = np.asarray(map_pictures("drift", [Trace(seed=0, maps={"drift": torch.full((2, 2), torch.nan)})])[0])[0, 0]
    for pixel, value in ((one, 0.5), (two, 1.0)):
        expected = 0.28 * grey + 0.72 * colours(np.array(value)).astype(float)
        np.testing.assert_allclose(pixel, expected, atol=2)


def test_pictures_of_another_run_are_refused(drawn):
    with pytest.raises(ValueError, match="got 1 images for 2 traces"):
        map_pictures("drift", drawn.traces, drawn.images[:1])
    with pytest.raises(ValueError, match="got 3 images for 2 traces"):
        check_images(drawn.traces, 3)


def test_the_plot_has_a_bar_per_pass_as_tall_as_its_tokens():
    pixels = np.asarray(plot(Trace(seed=0, tokens=9, nfe=2, accepted=[0, 6])))
    bar = (pixels == (144, 41, 118)).all(-1).sum(0)
    short, tall = bar[48 + 10], bar[48 + 300]
    assert tall == pytest.approx(7 * short, rel=0.1) and bar[:48].sum() == 0


def test_the_report_states_numbers_and_method(drawn):
    text = report(drawn.traces, drawn.recipes)
    blocks = text.split("\n\n")
    assert len(blocks) == 2
    for block, trace in zip(blocks, drawn.traces, strict=True):
        assert f"seed {trace.seed}: {trace.tokens} tokens in {trace.nfe} passes" in block
        assert f"tokens per pass: {trace.tokens_per_step:.2f}" in block
        assert f"{trace.drift_per_token:.5f} per token" in block
        assert "EntropyRelaxation (lam 0.5" in block and "TVFilter" in block and "model embedded" in block


def test_image_tensors_and_pictures_convert_both_ways():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8))
    images = to_images([picture, picture])
    assert images.shape == (2, 5, 7, 3) and images.dtype == torch.float32 and 0 <= images.min() <= images.max() <= 1
    assert (np.asarray(to_pictures(images)[1]) == np.asarray(picture)).all()
    red = to_pictures(torch.tensor([1.0, 0.0, 0.0]).expand(1, 4, 4, 3))[0]
    assert red.getpixel((0, 0)) == (255, 0, 0)
