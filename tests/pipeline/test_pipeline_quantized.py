"""Weights of 8 and 4 bits: packed, saved, loaded in a fresh process, the same greedy tokens; heads and VQ kept whole.

Run with bitsandbytes on the processor; its kernels on a GPU are other ones.
"""

import json

import pytest
import torch
from safetensors import safe_open
from test_fresh_processes import PRELUDE, finish, start
from tiny_janus import PROMPT, draw, tiny_model, tiny_pipeline, write_stock
from torch import nn

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.quantization import config_of_target, quantization_config
from csd_pipeline.targets import full_precision_modules

PACKED = {8: torch.int8, 4: torch.uint8}
EXACT = (
    "generation_head",
    "generation_embeddings",
    "generation_aligner",
    "vqmodel",
    "vision_model",
    "aligner",
    "lm_head",
)


def is_kept(name: str) -> bool:
    return any(f".{part}." in f".{name}." for part in EXACT)


@pytest.fixture(scope="module")
def shared():
    """Layers as wide as those of published models can be divided: on processors that compute in bfloat16, bitsandbytes
    rearranges 4-bit weights in tiles of 32 by 64."""
    return tiny_pipeline(target=tiny_model(width=128))


@pytest.fixture(scope="module", params=[8, 4])
def packed(request, shared, tmp_path_factory):
    """Bits, and a pipeline loaded with them from a transformers checkpoint."""
    stock = tmp_path_factory.mktemp("stock wide")
    write_stock(shared, stock)
    config = quantization_config(request.param, compute_dtype=torch.float32)
    pipeline = CSDAutoregressivePipeline.from_pretrained(stock, quantization_config=config)
    pipeline.set_progress_bar_config(disable=True)
    return request.param, pipeline


def test_the_layers_are_packed_and_heads_and_decoder_are_not(packed, shared):
    bits, pipeline = packed
    kinds = {name: m.weight.dtype for name, m in pipeline.target.named_modules() if isinstance(m, nn.Linear)}
    layers = [name for name in kinds if ".language_model.layers." in name]
    assert len(layers) == 2 * 7 and {kinds[name] for name in layers} == {PACKED[bits]}
    kept = [name for name in kinds if is_kept(name)]
    assert len(kept) + len(layers) == len(kinds) and {kinds[name] for name in kept} == {torch.float32}
    wanted = shared.target.state_dict()
    for name, tensor in pipeline.target.state_dict().items():
        if is_kept(name):
            assert torch.equal(tensor, wanted[name])


def test_pictures_are_sound_and_differ_from_those_of_whole_weights_by_rounding(packed, shared):
    bits, pipeline = packed
    images = pipeline(PROMPT, seed=3, output_type="pt").images
    assert torch.isfinite(images).all() and images.std() > 0
    error = {}
    for name, target in (("packed", pipeline.target), ("whole", shared.target)):
        ids = torch.tensor([[1, 8, 10, 12]])
        error[name] = target.model.language_model(input_ids=ids).last_hidden_state
    distance = (error["packed"] - error["whole"]).abs().max() / error["whole"].abs().max()
    assert 0 < distance < {8: 0.02, 4: 0.2}[bits]


def test_saved_and_loaded_again_in_a_fresh_process_the_tokens_are_the_same(packed, tmp_path):
    bits, pipeline = packed
    pipeline.save_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "target" / "config.json").read_text())["quantization_config"]
    assert config[f"load_in_{bits}bit"] and set(config["llm_int8_skip_modules"]) == set(full_precision_modules())
    with safe_open(tmp_path / "saved" / "target" / "model.safetensors", "pt") as file:
        heads = [file.get_slice(key).get_dtype() for key in file.keys() if is_kept(key)]  # noqa: SIM118
    assert set(heads) <= {"F32", "I64"}
    code = f"""
from csd_pipeline import CSDAutoregressivePipeline
for dtype in (None, "auto"):
    pipeline = CSDAutoregressivePipeline.from_pretrained({str(tmp_path / "saved")!r}, dtype=dtype)
    pipeline.set_progress_bar_config(disable=True)
    options = dict(temperature=0, guidance_scale=2.0, output_type="latent", num_images_per_prompt=2)
    print(json.dumps(pipeline({PROMPT!r}, **options).images.tolist()))
"""
    status, out, error = finish(start(PRELUDE + code, tmp_path))
    assert status == 0, error
    expected = draw(pipeline, temperature=0, num_images_per_prompt=2)
    assert [json.loads(line) for line in out.splitlines()] == 2 * [expected.tolist()]


def test_a_saved_pipeline_is_packed_while_it_loads(packed, shared, tmp_path):
    (bits, _), saved = packed, tmp_path / "saved"
    shared.save_pretrained(saved)
    config = quantization_config(bits, compute_dtype=torch.float32)
    for dtype in (torch.float32, "auto"):
        again = CSDAutoregressivePipeline.from_pretrained(saved, dtype=dtype, quantization_config=config)
        again.set_progress_bar_config(disable=True)
        layer = again.target.model.language_model.layers[0].mlp.up_proj
        assert layer.weight.dtype == PACKED[bits]
        assert torch.equal(again.target.lm_head.weight, shared.target.lm_head.weight)
        assert draw(again).shape == (1, 16)


def test_what_can_not_be_packed_or_saved_is_refused_by_name():
    with pytest.raises(ValueError, match="unknown backend 'quanto'.*known: bitsandbytes, torchao"):
        quantization_config(8, backend="quanto")
    with pytest.raises(ValueError, match="torchao can not pack weights into 4 bits.*bitsandbytes: 8, 4; torchao: 8"):
        quantization_config(4, backend="torchao")
    with pytest.raises(ValueError, match="into 2 bits"):
        quantization_config(2)
    with pytest.raises(ValueError, match="unknown library 'difusers'.*did you mean 'diffusers'"):
        quantization_config(8, library="difusers")


def test_a_missing_backend_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="8-bit weights need bitsandbytes; run `pip install bitsandbytes`"):
        quantization_config(8)


def test_a_config_of_the_wrong_library_is_refused():
    for library, of_diffusers in (("transformers", True), ("diffusers", False)):
        config = quantization_config(8, library=library)
        assert config_of_target(config, not of_diffusers) is config.quant_mapping["target"]
        with pytest.raises(ValueError, match="the target is a model of"):
            config_of_target(config, of_diffusers)
    assert config_of_target(None, True) is None
