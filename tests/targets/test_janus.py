from pathlib import Path

import pytest
import torch
from helpers_janus import BOI, BOS, PAD, janus_tokenizer, left_padded, prompt_batch, reference_logits, tiny_janus
from transformers import AutoTokenizer, JanusForConditionalGeneration

import csd_pipeline
from csd_pipeline.decoding import Warp, decode
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.drafters.entry import ENTRIES
from csd_pipeline.drafters.jacobi import REDRAWS
from csd_pipeline.relaxation import Exact
from csd_pipeline.targets import PromptBatch, adapter_for
from csd_pipeline.targets.janus import JanusAdapter

MODEL = tiny_janus()
PROMPTS = [[BOS, 8, 9, BOI], [BOS, 10, 11, 12, 13, 14, BOI], [BOS, 12, BOI]]
EMBEDDED = Path(csd_pipeline.__path__[0]) / "models" / "embedded"


def run(model, batch, drafter, warp, seeds, on_pass=None):
    adapter = JanusAdapter(model)
    session = adapter.open(batch, drafter.window)
    result = decode(session, adapter, seeds=seeds, warp=warp, drafter=drafter, relaxation=Exact(), on_pass=on_pass)
    return result, session


def reference_rows(codes) -> torch.Tensor:
    """[2B, N, V] logits of the tiny model, conditional rows first, each row computed alone and unpadded."""
    rows = []
    for unconditional in (False, True):
        for prompt, row in zip(PROMPTS, codes, strict=True):
            ids = torch.tensor(prompt)
            if unconditional:
                ids = torch.where((ids == BOS) | (ids == BOI), ids, PAD)
            rows.append(reference_logits(MODEL, ids, row))
    return torch.stack(rows)


def test_adapter_reads_the_configuration():
    adapter = adapter_for(MODEL)
    assert isinstance(adapter, JanusAdapter) and adapter.vocabulary == 24 and adapter.image_size == (8, 8)
    assert (adapter.grid.rows, adapter.grid.columns, adapter.grid.forced) == (4, 4, None)
    assert adapter.decode(torch.randint(24, (2, 16))).shape == (2, 3, 8, 8)


def test_attention_without_masks_per_row_is_replaced_with_one_warning(caplog):
    model = tiny_janus("eager")
    adapter_for(model)
    assert not caplog.records and model.model.language_model.config._attn_implementation == "eager"
    model.model.language_model.config._attn_implementation = "flash_attention_2"
    for _ in range(2):
        adapter = adapter_for(model)
    (record,) = caplog.records
    assert "from 'flash_attention_2' to 'sdpa'" in record.getMessage()
    assert adapter.language_model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_windows_of_a_mixed_padded_batch_equal_a_full_forward(attention):
    """Prompts of three lengths, guidance rows, images at different positions; every rejection index in turn."""
    model = tiny_janus(attention)
    adapter, window = JanusAdapter(model), 5
    codes = torch.randint(24, (3, 16), generator=torch.Generator().manual_seed(1))
    expected = reference_rows(codes)
    session = adapter.open(prompt_batch(*left_padded(*PROMPTS)), window)
    with torch.no_grad():
        assert torch.allclose(session.prefill(), expected[:, :1], atol=1e-4)
        committed = torch.tensor([1, 1, 1])
        for step in range(8):
            count = min(window, 16 - int(committed.min()))
            positions = committed[:, None] - 1 + torch.arange(count)
            tokens = codes.gather(1, positions.clamp(max=15))
            right = (step + torch.arange(3)) % 3  # accepted drafts of each image; the next draft is wrong
            wrong = torch.arange(count) > right[:, None]
            tokens = torch.where(wrong, (tokens + 1 + step) % 24, tokens)
            logits = session.step(tokens, committed, int(committed.max()))
            for row in range(6):
                image = row % 3
                good = min(int(right[image]) + 1, 16 - int(committed[image]))
                start = int(committed[image])
                assert torch.allclose(logits[row, :good], expected[row, start : start + good], atol=1e-4), (step, row)
            committed = (committed + right + 1).clamp(max=15)


@pytest.mark.parametrize("right", range(5))
def test_rollback_leaves_no_trace_at_any_rejection_index(right):
    adapter, codes = JanusAdapter(MODEL), torch.randint(24, (1, 16), generator=torch.Generator().manual_seed(2))
    expected = reference_logits(MODEL, torch.tensor(PROMPTS[0]), codes[0])
    session = adapter.open(prompt_batch(*left_padded(PROMPTS[0]), guided=False), 5)
    with torch.no_grad():
        session.prefill()
        tokens = codes[:, :5].clone()
        tokens[:, right + 1 :] = (tokens[:, right + 1 :] + 1) % 24
        first = session.step(tokens, torch.tensor([1]), 1)
        assert torch.allclose(first[0, : right + 1], expected[1 : right + 2], atol=1e-4)
        committed = right + 2
        again = session.step(codes[:, committed - 1 : committed + 4], torch.tensor([committed]), committed)
    assert torch.allclose(again[0], expected[committed : committed + 5], atol=1e-4)


def test_eager_attention_equals_sdpa():
    batch, warp = prompt_batch(*left_padded(*PROMPTS)), Warp(guidance_scale=3)
    tokens = [run(tiny_janus(a), batch, JacobiDrafter(4), warp, [1, 2, 3])[0].tokens for a in ("sdpa", "eager")]
    assert torch.equal(*tokens)


def test_other_attention_kernels_are_replaced():
    model = tiny_janus()
    model.model.language_model.config._attn_implementation = "flash_attention_2"
    assert JanusAdapter(model).language_model.config._attn_implementation == "sdpa"


def test_finished_images_leave_and_the_others_do_not_notice():
    adapter = JanusAdapter(MODEL)
    codes = torch.randint(24, (3, 16), generator=torch.Generator().manual_seed(3))
    expected = reference_rows(codes)
    session = adapter.open(prompt_batch(*left_padded(*PROMPTS)), 4)
    with torch.no_grad():
        session.prefill()
        pointers = [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in session.cache.layers]
        session.step(codes[:, :4], torch.tensor([1, 1, 1]), 1)
        session.keep(torch.tensor([0, 2]))
        assert session.images == 2 and session.rows == 4
        logits = session.step(codes[[0, 2], 4:8], torch.tensor([5, 5]), 5)
        assert torch.allclose(logits, expected[[0, 2, 3, 5], 5:9], atol=1e-4)
        session.keep(torch.tensor([1]))
        logits = session.step(codes[[2], 8:11], torch.tensor([9]), 9)
        assert torch.allclose(logits, expected[[2, 5], 9:12], atol=1e-4)
    assert pointers == [(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in session.cache.layers]


def test_cache_storage_never_moves_in_a_whole_run():
    adapter, pointers = JanusAdapter(MODEL), set()
    session = adapter.open(prompt_batch(*left_padded(*PROMPTS)), 5)

    def note(progress):
        pointers.add(
            tuple(p for layer in session.cache.layers for p in (layer.keys.data_ptr(), layer.values.data_ptr()))
        )

    result = decode(
        session,
        adapter,
        seeds=[1, 2, 3],
        warp=Warp(guidance_scale=2),
        drafter=JacobiDrafter(5),
        relaxation=Exact(),
        on_pass=note,
    )
    assert len({trace.nfe for trace in result.traces}) > 1 and len(pointers) == 1


def test_nfe_equals_the_forwards_of_the_language_model():
    calls = []
    handle = MODEL.model.language_model.register_forward_hook(lambda *args: calls.append(1))
    result, _ = run(MODEL, prompt_batch(*left_padded(*PROMPTS)), JacobiDrafter(5), Warp(guidance_scale=2), [1, 2, 3])
    handle.remove()
    assert len(calls) - 1 == max(trace.nfe for trace in result.traces)
    assert all(trace.prefill_nfe == 1 for trace in result.traces)


@pytest.mark.parametrize("window", [1, 2, 8, 16, 64])
def test_gumbel_mode_is_plain_decoding_token_for_token(window):
    batch, warp = prompt_batch(*left_padded(*PROMPTS, PROMPTS[0])), Warp(guidance_scale=3, temperature=0.9, top_k=12)
    seeds = [4, 5, 2**64 - 1, 2**40]
    plain = run(MODEL, batch, JacobiDrafter(1), warp, seeds)[0].tokens
    assert len(plain.unique(dim=0)) == 4
    for init in ENTRIES:
        assert torch.equal(run(MODEL, batch, JacobiDrafter(window, "gumbel", init), warp, seeds)[0].tokens, plain)
    for image, prompt in enumerate(PROMPTS):
        alone = run(
            MODEL, prompt_batch(*left_padded(prompt)), JacobiDrafter(window, "gumbel"), warp, seeds[image : image + 1]
        )
        assert torch.equal(alone[0].tokens[0], plain[image])


def own_greedy(model, ids, mask, scale):
    return model.generate(ids, attention_mask=mask, generation_mode="image", do_sample=False, guidance_scale=scale)


@pytest.mark.parametrize("redraw", REDRAWS)
def test_greedy_tokens_equal_transformers_own(redraw):
    ids, mask = left_padded(*PROMPTS)
    for scale in (1.5, 5.0):
        expected = own_greedy(MODEL, ids, mask, scale)
        for window in (1, 6):
            batch = prompt_batch(ids, mask)
            tokens = run(
                MODEL, batch, JacobiDrafter(window, redraw), Warp(guidance_scale=scale, temperature=0), [0, 1, 2]
            )[0].tokens
            assert torch.equal(tokens, expected)


# --- prompts --------------------------------------------------------------------------------------------------------


def test_the_published_prompt_format():
    adapter, tokenizer = JanusAdapter(MODEL), janus_tokenizer()
    assert adapter.format_prompt("a red cat", tokenizer) == "<|User|>: a red cat\n\n<|Assistant|>:<begin_of_image>"
    assert adapter.format_prompt("a red cat", janus_tokenizer(roles=False)) == "a red cat<begin_of_image>"


@pytest.mark.parametrize(
    "token", ["<|User|>", "<|Assistant|>", "<begin_of_image>", "<bos>", "<eos>", "<pad>", "<image_placeholder>"]
)
def test_control_tokens_in_a_prompt_have_no_effect(token):
    adapter, tokenizer = JanusAdapter(MODEL), janus_tokenizer()
    plain = tokenizer(adapter.format_prompt("red cat", tokenizer)).input_ids
    assert tokenizer(adapter.format_prompt(f"red {token} cat", tokenizer)).input_ids == plain
    half = len(token) // 2
    hidden = adapter.format_prompt(f"red {token[:half]}{token}{token[half:]} cat", tokenizer)
    identity = tokenizer.convert_tokens_to_ids(token)
    assert tokenizer(hidden).input_ids.count(identity) == plain.count(identity)


def test_guidance_rows_keep_bos_and_boi_only():
    ids, _ = left_padded(*PROMPTS)
    rows = JanusAdapter(MODEL).unconditional(ids, janus_tokenizer())
    assert rows.tolist() == [
        [PAD, PAD, PAD, BOS, PAD, PAD, BOI],
        [BOS, PAD, PAD, PAD, PAD, PAD, BOI],
        [PAD, PAD, PAD, PAD, BOS, PAD, BOI],
    ]


def test_tokenizers_without_the_needed_tokens_are_refused():
    adapter, tokenizer = JanusAdapter(MODEL), janus_tokenizer()
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="no pad_token"):
        adapter.unconditional(torch.tensor([[1, 3]]), tokenizer)
    tokenizer = janus_tokenizer()
    tokenizer.get_vocab = lambda: {}
    with pytest.raises(ValueError, match="no begin-of-image token '<begin_of_image>'"):
        adapter.format_prompt("cat", tokenizer)


# --- the shipped model ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embedded():
    """The shipped model and a batch of two prompts of different lengths.

    Float64, so that windows of different widths round alike and the tests see the algorithm alone.
    """
    model = JanusForConditionalGeneration.from_pretrained(EMBEDDED, dtype=torch.float64).eval()
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    adapter = JanusAdapter(model)
    texts = [
        adapter.format_prompt(text, tokenizer) for text in ("a red flower", "two small birds on a wooden fence at dusk")
    ]
    encoded = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
    assert encoded.attention_mask.sum(1).unique().numel() == 2
    return model, encoded.input_ids, encoded.attention_mask, adapter.unconditional(encoded.input_ids, tokenizer)


def embedded_batch(embedded, *images):
    _, ids, mask, unconditional = embedded
    images = list(images)
    return PromptBatch(ids[images], mask[images], unconditional[images], mask[images])


WARP = Warp(guidance_scale=3.0)


@pytest.fixture(scope="module")
def embedded_plain(embedded):
    return run(embedded[0], embedded_batch(embedded, 0, 1), JacobiDrafter(1), WARP, [11, 12])[0].tokens


@pytest.mark.parametrize(("window", "init"), [(2, "left-copy"), (8, "left"), (16, "mean"), (64, "above")])
def test_shipped_model_in_gumbel_mode_is_plain_decoding(embedded, embedded_plain, window, init):
    result, _ = run(embedded[0], embedded_batch(embedded, 0, 1), JacobiDrafter(window, "gumbel", init), WARP, [11, 12])
    assert torch.equal(result.tokens, embedded_plain)
    assert all(trace.nfe < trace.tokens - 1 for trace in result.traces)


def test_shipped_model_alone_equals_its_row_of_a_batch(embedded, embedded_plain):
    result, _ = run(embedded[0], embedded_batch(embedded, 0), JacobiDrafter(16, "gumbel"), WARP, [11])  # the padded row
    assert torch.equal(result.tokens[0], embedded_plain[0])


def test_shipped_model_greedy_equals_transformers_own(embedded):
    model, ids, mask, _ = embedded
    model.generation_config.generation_kwargs = {"boi_token_id": int(ids[0, -1])}
    expected = own_greedy(model, ids, mask, 3.0)
    greedy = Warp(guidance_scale=3.0, temperature=0)
    assert torch.equal(
        run(model, embedded_batch(embedded, 0, 1), JacobiDrafter(16), greedy, [0, 1])[0].tokens, expected
    )
