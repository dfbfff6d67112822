"""What every family's adapter must keep, on a scaled-down random model with the family's own transformers forward."""

import warnings
from functools import cache

import pytest
import torch
from families import FAMILIES, Family

from csd_pipeline.decoding import Warp, decode
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.drafters.entry import ENTRIES
from csd_pipeline.drafters.jacobi import REDRAWS
from csd_pipeline.prompts import encode
from csd_pipeline.relaxation import Exact
from csd_pipeline.targets import PromptBatch, adapter_for

PROMPTS = ["red cat", "a dog on a blue roof", "cat"]
CLASSES = ["class 2", "7", "0"]
GUIDED = Warp(guidance_scale=3.0, temperature=0.9)
every_family = pytest.mark.parametrize("name", FAMILIES)


@cache
def family(name: str) -> Family:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FAMILIES[name]()


def opened(name: str, prompts=None, window: int = 5):
    part = family(name)
    prompts = prompts_of(name) if prompts is None else prompts
    adapter = adapter_for(part.model, part.size)
    rows = encode(adapter, part.tokenizer, prompts, None)
    return adapter, adapter.open(PromptBatch(*rows), window), rows


def prompts_of(name: str) -> list[str]:
    return CLASSES if family(name).tokenizer is None else PROMPTS


def some_tokens(adapter, images: int, seed: int) -> torch.Tensor:
    """Tokens [images, N]: random codes, the line marks where the grid forces them."""
    codes = torch.randint(
        adapter.vocabulary - adapter.grid.marks,
        (images, adapter.grid.tokens),
        generator=torch.Generator().manual_seed(seed),
    )
    forced = adapter.grid.forced
    return codes if forced is None else torch.where(forced >= 0, forced, codes)


def expected_rows(name: str, rows, tokens) -> torch.Tensor:
    """[2B, N + 1, K] logits, every row computed alone and without padding."""
    part, logits = family(name), []
    for conditional, (ids, mask) in ((True, rows[:2]), (False, rows[2:])):
        for prompt, real, row in zip(ids, mask, tokens, strict=True):
            logits.append(part.reference(prompt[real.bool()], row, conditional))
    return torch.stack(logits)


def run(name: str, drafter, warp=GUIDED, seeds=(4, 5, 2**64 - 1), prompts=None):
    adapter, session, _ = opened(name, prompts, drafter.window)
    return decode(session, adapter, seeds=list(seeds), warp=warp, drafter=drafter, relaxation=Exact(), maps=True)


@every_family
def test_windows_of_a_mixed_padded_batch_equal_the_families_own_forward(name):
    """Prompts of three lengths, shorter guidance rows, images at different positions, every rejection index in turn."""
    adapter, session, rows = opened(name)
    count = adapter.grid.tokens
    tokens = some_tokens(adapter, 3, seed=1)
    expected = expected_rows(name, rows, tokens)
    with torch.no_grad():
        assert torch.allclose(session.prefill(), expected[:, :1], atol=1e-4)
        committed, step = torch.ones(3, dtype=torch.int64), 0
        while int(committed.min()) < count - 1:
            length = min(5, count - int(committed.min()))
            positions = committed[:, None] - 1 + torch.arange(length)
            window = tokens.gather(1, positions.clamp(max=count - 1))
            right = (step + torch.arange(3)) % 3  # accepted drafts of each image; the next draft is wrong
            wrong = torch.arange(length) > right[:, None]
            window = torch.where(wrong, (window + 1 + step) % adapter.vocabulary, window)
            logits = session.step(window, committed, int(committed.max()))
            for row in range(6):
                start, good = int(committed[row % 3]), int(right[row % 3]) + 1
                good = min(good, count - start)
                assert torch.allclose(logits[row, :good], expected[row, start : start + good], atol=1e-4), (step, row)
            committed, step = (committed + right + 1).clamp(max=count - 1), step + 1


@every_family
@pytest.mark.parametrize("window", [1, 3, 8])
def test_gumbel_mode_is_plain_decoding_token_for_token(name, window):
    plain = run(name, JacobiDrafter(1)).tokens
    assert len(plain.unique(dim=0)) == 3
    for init in ENTRIES:
        assert torch.equal(run(name, JacobiDrafter(window, "gumbel", init)).tokens, plain)
    for image, prompt in enumerate(prompts_of(name)):
        alone = run(name, JacobiDrafter(window, "gumbel"), seeds=[(4, 5, 2**64 - 1)[image]], prompts=[prompt])
        assert torch.equal(alone.tokens[0], plain[image])


@every_family
@pytest.mark.parametrize("redraw", REDRAWS)
def test_greedy_is_the_argmax_of_the_guided_reference(name, redraw):
    warp = Warp(guidance_scale=2.0, temperature=0)
    tokens = run(name, JacobiDrafter(6, redraw), warp).tokens
    adapter, _, rows = opened(name)
    logits = expected_rows(name, rows, tokens)[:, :-1]
    best = (logits[3:] + 2.0 * (logits[:3] - logits[3:])).argmax(-1)
    forced = adapter.grid.forced
    assert torch.equal(tokens, best if forced is None else torch.where(forced >= 0, forced, best))


@pytest.mark.parametrize("name", [name for name in FAMILIES if not name.startswith("llamagen")])
@pytest.mark.parametrize("loved", [0, 1])
def test_the_grid_is_exactly_the_size_asked_for_whatever_the_head_loves(name, loved):
    """A head that adores or abhors every token outside the picture (line ends, end of image, text)."""
    part = family(name)
    adapter = adapter_for(part.model, part.size)
    head = part.model.lm_head
    outside = torch.ones(head.weight.shape[0], dtype=torch.bool)
    outside[adapter.vocabulary_codes.codes] = False
    saved = head.weight.detach().clone()
    try:
        with torch.no_grad():
            head.weight[outside] = (1e4 if loved else -1e4) * saved[outside].sign()
        result = run(name, JacobiDrafter(6, "coupled"))
    finally:
        with torch.no_grad():
            head.weight.copy_(saved)
    grid = adapter.grid
    picture = grid.picture(result.tokens)
    height, width = adapter.image_size
    assert picture.shape == (3, height // adapter.patch, width // adapter.patch)
    assert (picture < len(adapter.vocabulary_codes.codes)).all()
    if grid.forced is not None:
        marks = result.tokens.unflatten(-1, (grid.rows, grid.columns))[..., grid.columns - grid.marks :]
        assert (marks >= len(adapter.vocabulary_codes.codes)).all()
    pixels = adapter.decode(result.tokens)
    assert pixels.shape == (3, 3, height, width) and torch.isfinite(pixels).all()
    assert result.traces[0].maps["entropy"].shape == picture.shape[1:]


@every_family
def test_a_size_the_model_can_not_draw_is_refused_with_those_it_can(name):
    with pytest.raises(ValueError, match=r"this model draws .*\(width x height\), got width=1000, height=24"):
        adapter_for(family(name).model, (24, 1000))
