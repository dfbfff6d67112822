"""Half precision and broken numbers: every mix decodes, and a picture of NaN never comes out."""

import pytest
import torch
from tiny_janus import PIXELS, PROMPT, draw, tiny_model, tiny_pipeline

from csd_pipeline.decoding import NonFiniteLogits
from csd_pipeline.pixels import NonFinitePixels, decode_pixels
from csd_pipeline.targets import adapter_for

HALF, BRAIN, FULL = torch.float16, torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    "language, decoder", [(HALF, BRAIN), (BRAIN, FULL), (FULL, HALF), (HALF, HALF), (BRAIN, BRAIN)]
)
def test_every_mix_of_dtypes_decodes(fresh_pipeline, language, decoder):
    fresh_pipeline.target.to(language)
    fresh_pipeline.target.model.vqmodel.to(decoder)
    pixels = fresh_pipeline(PROMPT, seed=3, output_type="pt").images
    assert pixels.shape == (1, 3, PIXELS, PIXELS) and torch.isfinite(pixels).all() and pixels.std() > 0
    assert {p.dtype for p in fresh_pipeline.target.model.vqmodel.parameters()} == {decoder}


@pytest.fixture
def overflowing():
    """A decoder whose result is beyond float16, but not beyond float32."""
    model = tiny_model().half()
    with torch.no_grad():
        model.model.vqmodel.decoder.conv_out.weight.fill_(6e4)
    return model


def test_a_decoder_that_overflows_is_run_again_in_float32(overflowing):
    adapter, tokens = adapter_for(overflowing), torch.arange(16)[None]
    assert not torch.isfinite(adapter.decode(tokens)).all()
    pixels = decode_pixels(adapter, tokens)
    assert torch.isfinite(pixels).all() and pixels.dtype == FULL
    assert {p.dtype for p in overflowing.model.vqmodel.parameters()} == {HALF}  # and then put back


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_damaged_decoder_is_an_error_not_a_black_picture(fresh_pipeline, value):
    with torch.no_grad():
        fresh_pipeline.target.model.vqmodel.decoder.conv_out.bias.fill_(value)
    for kind in ("pil", "np", "pt"):
        with pytest.raises(NonFinitePixels, match="its weights are damaged"):
            fresh_pipeline(PROMPT, seed=3, output_type=kind)
    assert draw(fresh_pipeline).shape == (1, 16)  # the tokens themselves are sound


def test_a_damaged_language_model_is_an_error(fresh_pipeline):
    with torch.no_grad():
        fresh_pipeline.target.model.generation_head.vision_head.bias.fill_(torch.nan)
    with pytest.raises(NonFiniteLogits, match="load the target with dtype=torch.bfloat16"):
        draw(fresh_pipeline)


def test_large_batches_of_pixels_equal_small_ones(shared):
    tokens = draw(shared, PROMPT, num_images_per_prompt=10)
    adapter = adapter_for(shared.target)
    together = decode_pixels(adapter, tokens)
    assert torch.allclose(together, torch.cat([decode_pixels(adapter, row[None]) for row in tokens]), atol=1e-5)


@pytest.mark.parametrize("knobs", [{"temperature": 0.01}, {"guidance_scale": 20.0}, {"top_k": 1}, {"top_p": 0.0}])
def test_extreme_settings_draw_legal_tokens(knobs):
    pipeline = tiny_pipeline(target=tiny_model().half())
    tokens = draw(pipeline, PROMPT, num_images_per_prompt=2, **knobs)
    assert tokens.min() >= 0 and tokens.max() < 32
    if "top_k" in knobs or "top_p" in knobs:
        assert torch.equal(tokens[0], tokens[1])
