"""Components: saving, loading, swapping, sharing, dtypes."""

import json

import diffusers.pipelines
import pytest
import torch
from diffusers import DiffusionPipeline
from tiny_janus import PROMPT, draw, tiny_model, tiny_pipeline, tiny_tokenizer

from csd_pipeline import (
    CombinedFilter,
    CSDAutoregressivePipeline,
    DriftBudget,
    EntropyRelaxation,
    Exact,
    JacobiDrafter,
    KLFilter,
    ToyTarget,
    TVFilter,
)
from csd_pipeline.components import PARTS
from csd_pipeline.recipe import describe

FILTERS = (TVFilter(delta=0.3), KLFilter(), DriftBudget(0.05), TVFilter(delta=0.3) & DriftBudget(0.05), None)


def options(part):
    return part and {name: value for name, value in part.config.items() if not name.startswith("_")}


def parts_of(pipeline):
    return {name: (type(getattr(pipeline, name)), options(getattr(pipeline, name))) for name in PARTS}


def test_every_component_comes_back(shared, saved, expected):
    loaded = CSDAutoregressivePipeline.from_pretrained(saved)
    assert parts_of(loaded) == parts_of(shared)
    assert torch.equal(draw(loaded), expected)
    stored = loaded.target.state_dict()
    assert all(torch.equal(tensor, stored[name]) for name, tensor in shared.target.state_dict().items())
    assert loaded.tokenizer.get_vocab() == shared.tokenizer.get_vocab()


def test_loading_again_and_saving_again_changes_nothing(saved, tmp_path):
    CSDAutoregressivePipeline.from_pretrained(saved).save_pretrained(tmp_path)
    files = sorted(str(file.relative_to(saved)) for file in saved.rglob("*") if file.is_file())
    assert files == sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file())
    for name in ("model_index.json", "pipeline.py", "drafter/csd_pipeline.py"):
        assert (saved / name).read_text() == (tmp_path / name).read_text()


@pytest.mark.parametrize("alignment_filter", FILTERS, ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("remote_code", [True, False])
def test_every_filter_saves_with_the_pipeline(shared, tmp_path, alignment_filter, remote_code):
    toy = CSDAutoregressivePipeline(ToyTarget(), None, JacobiDrafter(window=3), EntropyRelaxation(), alignment_filter)
    toy.save_pretrained(tmp_path, remote_code=remote_code)
    loaded = CSDAutoregressivePipeline.from_pretrained(tmp_path)
    assert parts_of(loaded) == parts_of(toy)
    assert type(loaded.target) is ToyTarget and torch.equal(loaded.target.table, toy.target.table)
    assert (tmp_path / "pipeline.py").exists() == remote_code


def test_plain_folder_keeps_no_code_of_an_earlier_save(pipeline, tmp_path):
    pipeline.save_pretrained(tmp_path)
    assert list(tmp_path.rglob("*.py"))
    pipeline.save_pretrained(tmp_path, remote_code=False)
    assert not list(tmp_path.rglob("*.py"))
    assert type(DiffusionPipeline.from_pretrained(tmp_path)) is CSDAutoregressivePipeline


def test_parts_that_are_none_stay_none(pipeline, tmp_path):
    pipeline.drafter = pipeline.relaxation = pipeline.alignment_filter = None
    tokens = draw(pipeline)
    pipeline.save_pretrained(tmp_path, remote_code=False)
    for loader in (CSDAutoregressivePipeline, DiffusionPipeline):
        loaded = loader.from_pretrained(tmp_path)
        assert [getattr(loaded, name) for name in PARTS] == [None] * 3
        assert torch.equal(draw(loaded), tokens)
    trace = loaded(PROMPT, seed=7, guidance_scale=2.0).traces[0]
    assert trace.nfe == trace.tokens - 1 and trace.drift == 0  # one token per forward, exact


def test_a_pipeline_without_tokenizer_saves_and_draws_from_ids(shared, expected, tmp_path):
    tiny_pipeline(target=shared.target, tokenizer=None).save_pretrained(tmp_path)
    loaded = CSDAutoregressivePipeline.from_pretrained(tmp_path)
    assert loaded.tokenizer is None
    names = ("prompt_ids", "prompt_attention_mask", "negative_prompt_ids", "negative_prompt_attention_mask")
    ids = dict(zip(names, shared.encode_prompt(PROMPT), strict=True))
    assert torch.equal(draw(loaded, None, **ids), expected)
    with pytest.raises(ValueError, match="no tokenizer; give prompt_ids"):
        draw(loaded)


def test_components_given_by_name_replace_those_of_the_folder(saved, stock, shared):
    for folder in (saved, stock):
        loaded = CSDAutoregressivePipeline.from_pretrained(
            folder, target=shared.target, drafter=JacobiDrafter(window=2), relaxation=Exact(), alignment_filter=None
        )
        assert loaded.target is shared.target and loaded.drafter.config.window == 2
        assert type(loaded.relaxation) is Exact and loaded.alignment_filter is None


def test_swapping_a_component_changes_the_run(pipeline):
    pipeline.drafter, pipeline.relaxation = JacobiDrafter(window=1), Exact()
    slow = pipeline(PROMPT, seed=7, guidance_scale=2.0, output_type="latent")
    pipeline.drafter = JacobiDrafter(window=8, redraw="gumbel")
    fast = pipeline(PROMPT, seed=7, guidance_scale=2.0, output_type="latent")
    assert torch.equal(slow.images, fast.images) and fast.traces[0].nfe < slow.traces[0].nfe == 15
    pipeline.target = tiny_model(seed=1)
    assert not torch.equal(draw(pipeline), fast.images)


def test_components_rebuild_the_pipeline(pipeline, expected):
    assert set(pipeline.components) == {"target", "tokenizer", *PARTS}
    again = CSDAutoregressivePipeline(**pipeline.components)
    assert torch.equal(draw(again), expected)
    other = CSDAutoregressivePipeline.from_pipe(pipeline, relaxation=Exact())
    assert other.target is pipeline.target and type(other.relaxation) is Exact
    assert torch.equal(draw(CSDAutoregressivePipeline.from_pipe(pipeline)), expected)


def test_diffusers_knows_the_class_by_name():
    assert diffusers.CSDAutoregressivePipeline is diffusers.pipelines.CSDAutoregressivePipeline
    assert diffusers.CSDAutoregressivePipeline is CSDAutoregressivePipeline


def test_the_tokenizer_is_recorded_under_a_name_all_transformers_versions_know(plain):
    index = json.loads((plain / "model_index.json").read_text())
    assert index["tokenizer"] == ["transformers", "PreTrainedTokenizerFast"]
    config = json.loads((plain / "tokenizer" / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert isinstance(config["extra_special_tokens"], dict)  # version 4 breaks on the empty list version 5 writes


def test_sampling_defaults_are_saved(shared, tmp_path):
    components = shared.components
    pipeline = CSDAutoregressivePipeline(**components, default_guidance_scale=1.5, default_top_k=3, default_top_p=0.9)
    pipeline.save_pretrained(tmp_path)
    recipe = CSDAutoregressivePipeline.from_pretrained(tmp_path)(PROMPT, seed=0, top_p=0.8).recipes[0]
    assert (recipe["guidance_scale"], recipe["top_k"], recipe["top_p"]) == (1.5, 3, 0.8)


def test_a_preset_replaces_parts_and_sampling_defaults(pipeline):
    pipeline.load_preset("csd-lumina-mgpt-7b")
    recipe = pipeline(PROMPT, seed=0).recipes[0]
    assert (recipe["guidance_scale"], recipe["top_k"], recipe["drafter"]["redraw"]) == (3.0, 2000, "fresh")
    pipeline.load_preset("exact")
    assert pipeline(PROMPT, seed=0).recipes[0]["guidance_scale"] == 5.0  # back to that of the model family
    named = pipeline(PROMPT, seed=0, preset="csd-lumina-mgpt-7b", guidance_scale=2.0).recipes[0]
    assert (named["guidance_scale"], named["top_k"]) == (2.0, 2000) and type(pipeline.relaxation) is Exact


def test_guidance_of_the_checkpoint_is_the_default(stock, tmp_path):
    loaded = CSDAutoregressivePipeline.from_pretrained(stock)
    loaded.target.generation_config.guidance_scale = 1.25
    assert loaded(PROMPT, seed=0).recipes[0]["guidance_scale"] == 1.25
    loaded.save_pretrained(tmp_path)
    assert CSDAutoregressivePipeline.from_pretrained(tmp_path)(PROMPT, seed=0).recipes[0]["guidance_scale"] == 1.25


def test_combined_filters_are_stored_as_data(pipeline, tmp_path):
    pipeline.alignment_filter = TVFilter(delta=0.3) & DriftBudget(0.05)
    pipeline.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "alignment_filter" / "filter_config.json").read_text())
    assert [part["_class_name"] for part in stored["parts"]] == ["TVFilter", "DriftBudget"]
    assert type(CSDAutoregressivePipeline.from_pretrained(tmp_path).alignment_filter) is CombinedFilter


ASSIGNED = {
    "drafter": JacobiDrafter(3, "fresh"),
    "relaxation": EntropyRelaxation(lam=0.2),
    "alignment_filter": TVFilter(delta=0.3) & DriftBudget(0.05),
}


@pytest.mark.parametrize("name", ASSIGNED)
def test_a_part_in_the_place_of_none_is_saved(pipeline, tmp_path, name):
    for number, value in enumerate((None, ASSIGNED[name])):
        setattr(pipeline, name, value)
        pipeline.save_pretrained(tmp_path / str(number))
        loaded = getattr(CSDAutoregressivePipeline.from_pretrained(tmp_path / str(number)), name)
        assert type(loaded) is type(value) and (value is None or describe(loaded) == describe(value))
    assert getattr(pipeline, name) is ASSIGNED[name] and pipeline.components[name] is ASSIGNED[name]


@pytest.mark.parametrize("argument", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("value", [torch.bfloat16, "bfloat16", {"target": torch.bfloat16, "default": torch.float16}])
def test_dtype_by_either_name(saved, stock, argument, value):
    for folder in (saved, stock):
        assert CSDAutoregressivePipeline.from_pretrained(folder, **{argument: value}).target.dtype == torch.bfloat16


def test_dtype_auto_is_the_stored_one_and_float32_the_default(tmp_path):
    half = tiny_pipeline(target=tiny_model().to(torch.bfloat16))
    half.save_pretrained(tmp_path / "saved")
    half.target.save_pretrained(tmp_path / "stock")
    tiny_tokenizer().save_pretrained(tmp_path / "stock")
    for folder in (tmp_path / "saved", tmp_path / "stock"):
        assert CSDAutoregressivePipeline.from_pretrained(folder, torch_dtype="auto").target.dtype == torch.bfloat16
        assert CSDAutoregressivePipeline.from_pretrained(folder).target.dtype == torch.float32


def test_two_different_dtypes_are_refused(saved):
    with pytest.raises(ValueError, match=r"dtype=torch.float16 and torch_dtype=torch.bfloat16; give one"):
        CSDAutoregressivePipeline.from_pretrained(saved, dtype=torch.float16, torch_dtype=torch.bfloat16)
    same = CSDAutoregressivePipeline.from_pretrained(saved, dtype=torch.float16, torch_dtype="float16")
    assert same.target.dtype == torch.float16


@pytest.mark.parametrize("dtype", ["float17", 16, torch.int8])
def test_what_is_no_dtype_is_refused(saved, dtype):
    with pytest.raises(ValueError, match="dtype must be a floating-point torch dtype"):
        CSDAutoregressivePipeline.from_pretrained(saved, dtype=dtype)


def test_to_moves_and_casts(fresh_pipeline):
    assert fresh_pipeline.to(torch.bfloat16) is fresh_pipeline and fresh_pipeline.dtype == torch.bfloat16
    assert fresh_pipeline.to("cpu").device.type == "cpu"
    assert fresh_pipeline(PROMPT, seed=0).recipes[0]["dtype"] == "bfloat16"


def test_variant_files(shared, tmp_path):
    shared.save_pretrained(tmp_path, variant="fp16")
    assert (tmp_path / "target" / "model.fp16.safetensors").is_file()
    for dtype in (None, "auto"):
        loaded = CSDAutoregressivePipeline.from_pretrained(tmp_path, variant="fp16", dtype=dtype)
        assert torch.equal(draw(loaded), draw(shared))


def test_the_stock_checkpoint_decodes_exactly_and_may_lie_flat(stock, shared, tmp_path):
    loaded = CSDAutoregressivePipeline.from_pretrained(stock)
    assert type(loaded.relaxation) is Exact and loaded.alignment_filter is None
    for file in stock.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    index = {"_class_name": "CSDAutoregressivePipeline", "_diffusers_version": "0.38.0"}
    index |= {"target": ["transformers", "JanusForConditionalGeneration"]}
    index |= {"tokenizer": ["transformers", "PreTrainedTokenizerFast"]}
    index |= {name: [None, None] for name in PARTS}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    flat = DiffusionPipeline.from_pretrained(tmp_path)
    flat.load_preset("exact")
    assert torch.equal(draw(flat), draw(loaded))
