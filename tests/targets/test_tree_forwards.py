"""A forward over a tree of drafts, then the accepted path in its place: the laws of a full forward along every path."""

from pathlib import Path

import pytest
import torch
from families import FAMILIES
from helpers import open_toy
from helpers_janus import left_padded, prompt_batch, reference_logits, tiny_janus
from helpers_tree import check_every_path
from test_families import expected_rows, family, opened
from test_janus import PROMPTS
from transformers import AutoTokenizer, JanusForConditionalGeneration

import csd_pipeline
from csd_pipeline.decoding import Warp, decode
from csd_pipeline.decoding.cache import RowCache
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.prompts import encode
from csd_pipeline.relaxation import Exact
from csd_pipeline.targets import PromptBatch, adapter_for
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget

SIZE = (2, 2, 4)  # 2 candidates, 2 levels, 4 drafts: 9 tokens
TOKENS = 9
EMBEDDED = Path(csd_pipeline.__path__[0]) / "models" / "embedded"


def test_the_toy_reads_every_path_from_its_table():
    model = ToyTarget(3, 3, 4, classes=3, seed=3)

    def reference(image, tokens):
        length = torch.arange(len(tokens) + 1)
        sequence = torch.nn.functional.pad(tokens, (0, 12 - len(tokens))).expand(len(length), -1)
        return model.table[[image % 2, 2]][:, model.prefix_index(sequence, length)]

    for size, count in (((3, 2, 3), 14), ((2, 3, 4), 16), ((1, 2, 3), 4)):
        for stops in range(0, count, 4):
            session = open_toy(ToyAdapter(model), [0, 1], guided=True, window=20)
            assert count == check_every_path(session, 3, reference, size, stops=stops, atol=0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("stops", range(0, TOKENS, 3))
def test_janus_with_padding_and_guidance_rows(attention, stops):
    """Three images stop at three places in each of two passes; together the runs stop everywhere."""
    model = tiny_janus(attention)
    batch = prompt_batch(*left_padded(*PROMPTS))
    rows = [PROMPTS[i] for i in range(3)]

    def reference(image, tokens):
        conditional, mask = torch.tensor(rows[image]), None
        unconditional = prompt_batch(conditional[None], mask).unconditional_ids[0]
        codes = torch.cat([tokens, tokens[:1]])  # one more, whose own law is not asked for
        return torch.stack([reference_logits(model, ids, codes) for ids in (conditional, unconditional)])

    session = adapter_for(model).open(batch, TOKENS)
    pointers = []

    def note():
        pointers.append([(layer.keys.data_ptr(), layer.values.data_ptr()) for layer in session.cache.layers])

    adopt = session.adopt
    session.adopt = lambda *arguments: (note(), adopt(*arguments), note())
    assert check_every_path(session, 24, reference, SIZE, stops=stops) == TOKENS
    assert all(pointer == pointers[0] for pointer in pointers)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family(name):
    adapter, session, rows = opened(name, window=TOKENS)

    def reference(image, tokens):
        own = [part[image : image + 1] for part in rows]
        return expected_rows(name, own, tokens[None])

    codes = adapter.vocabulary - adapter.grid.marks
    assert check_every_path(session, codes, reference, SIZE, stops=4) == TOKENS


@pytest.mark.parametrize("name", FAMILIES)
def test_a_gumbel_tree_is_plain_decoding_in_every_family(name):
    warp = Warp(guidance_scale=3.0, temperature=0.9)
    pictures = []
    for drafter in (JacobiDrafter(1), JacobiDrafter(4, "gumbel", tree_width=3, tree_depth=2)):
        adapter, session, _ = opened(name, window=drafter.window + drafter.extra_tokens)
        run = decode(session, adapter, seeds=[4, 5, 6], warp=warp, drafter=drafter, relaxation=Exact())
        pictures.append(run.tokens)
    assert torch.equal(*pictures) and family(name).model is not None


def embedded():
    model = JanusForConditionalGeneration.from_pretrained(EMBEDDED).eval().float()
    return adapter_for(model), AutoTokenizer.from_pretrained(EMBEDDED)


def test_the_embedded_model():
    adapter, tokenizer = embedded()
    rows = encode(adapter, tokenizer, ["panda on grass", "rocket at starry night"], None)

    def reference(image, tokens):
        session = adapter.open(PromptBatch(*(part[image : image + 1] for part in rows)), len(tokens))
        first = session.prefill()
        return torch.cat([first, session.step(tokens[None], torch.tensor([1]), 1)], 1)

    session = adapter.open(PromptBatch(*rows), 30)
    check_every_path(session, adapter.vocabulary, reference, (3, 2, 6), passes=3, stops=4, atol=1e-3)


def test_the_embedded_model_draws_the_picture_of_plain_decoding():
    adapter, tokenizer = embedded()
    rows = encode(adapter, tokenizer, ["panda on grass", "rocket at starry night"], None)
    warp, results = Warp(guidance_scale=1.5, temperature=0.6), []
    for drafter in (JacobiDrafter(1), JacobiDrafter(16, "gumbel", tree_width=3, tree_depth=2)):
        session = adapter.open(PromptBatch(*rows), drafter.window + drafter.extra_tokens)
        results.append(decode(session, adapter, seeds=[1, 2], warp=warp, drafter=drafter, relaxation=Exact()))
    assert torch.equal(results[0].tokens, results[1].tokens)
    assert all(trace.nfe < 128 for trace in results[1].traces)


def test_moved_entries_overwrite_only_their_places():
    cache = RowCache(1, capacity=8)
    slots = torch.arange(8).expand(2, -1)
    cache.place(slots, 8)
    states = slots[:, None, :, None].expand(-1, 2, -1, 3).float()
    cache.layers[0].update(states.clone(), -states)
    storage = cache.layers[0].keys.data_ptr()
    cache.move(torch.tensor([[5, 2], [1, 7]]), torch.tensor([[1, 2], [1, 2]]))  # the second row reads what it writes
    keys, values = cache.layers[0].keys, cache.layers[0].values
    assert keys[:, 0, :, 0].tolist() == [[0, 5, 2, 3, 4, 5, 6, 7], [0, 1, 7, 3, 4, 5, 6, 7]]
    assert torch.equal(values, -keys) and keys.data_ptr() == storage
