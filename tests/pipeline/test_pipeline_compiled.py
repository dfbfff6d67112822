"""The pipeline with compiled passes; the compiler's back end is left out, so no C++ compiler is needed."""

import gc
import weakref

import pytest
import torch

from csd_pipeline import CSDAutoregressivePipeline, JacobiDrafter
from csd_pipeline.targets.base import CachedSession


@pytest.fixture(scope="module")
def pipe():
    pipeline = CSDAutoregressivePipeline.from_pretrained("embedded", dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.register_modules(drafter=JacobiDrafter(64, "gumbel"))
    return pipeline


def tokens(pipeline, **options):
    return pipeline("red apple on white", seed=3, output_type="latent", **options).images


def test_the_same_picture_and_nothing_of_the_run_is_held(pipe, monkeypatch):
    opened, start = [], CachedSession.__init__

    def watched(self, *arguments):
        start(self, *arguments)
        opened.append(weakref.ref(self))

    monkeypatch.setattr(CachedSession, "__init__", watched)
    plain = tokens(pipe)
    pipe.enable_compile(backend="eager")
    try:
        assert torch.equal(tokens(pipe), plain)
    finally:
        pipe.disable_compile()
    gc.collect()
    assert len(opened) == 2 and not any(session() for session in opened)


def test_offloaded_models_and_trees_are_refused(pipe, monkeypatch):
    pipe.enable_compile(backend="eager")
    monkeypatch.setattr(CachedSession, "prefill", lambda session: pytest.fail("the model runs"))
    try:
        pipe.register_modules(drafter=JacobiDrafter(8, "gumbel", tree_depth=2))
        with pytest.raises(ValueError, match="takes no tree of drafts; use tree_depth=0, or do not compile"):
            tokens(pipe)
        pipe.target.model.language_model._hf_hook = object()
        with pytest.raises(ValueError, match=r"needs the whole model on one device.*or call disable_compile\(\)"):
            tokens(pipe)
        with pytest.raises(ValueError, match="needs the whole model on one device"):
            pipe.enable_compile()
    finally:
        del pipe.target.model.language_model._hf_hook
        pipe.disable_compile()
