"""The converted tokenizer against a plain merge of byte pairs by rank."""

import pytest
from published import EMU3_MERGES

from csd_pipeline.layouts import Extra
from csd_pipeline.layouts.emu3_original import Emu3Original
from csd_pipeline.layouts.tiktoken_file import build, read_ranks
from csd_pipeline.weight_files import IncompleteCheckpoint

PIECES = {
    "red cat": [b"red", b" cat"],
    "low red: résumé 12": [b"low", b" red", b":", " résumé".encode(), b" ", b"1", b"2"],
}


def merged(piece: bytes, ranks: dict[bytes, int]) -> list[int]:
    """Merge the neighbours of the lowest rank until none is known."""
    parts = [bytes([byte]) for byte in piece]
    while True:
        pairs = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:], strict=False)) if a + b in ranks]
        if not pairs:
            return [ranks[part] for part in parts]
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@pytest.mark.parametrize("text", PIECES)
def test_ids_are_those_of_merging_by_rank(checkpoints, text):
    published = checkpoints("emu3-original")
    ranks = read_ranks(published.source / "emu3.tiktoken")
    assert all(token in ranks for token in EMU3_MERGES)
    tokenizer = Emu3Original().open(published.source, Extra()).load_tokenizer()
    assert tokenizer(text, add_special_tokens=False).input_ids == [
        i for piece in PIECES[text] for i in merged(piece, ranks)
    ]
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text


def test_special_tokens_follow_the_ranks_in_the_published_order(checkpoints):
    published = checkpoints("emu3-original")
    tokenizer = Emu3Original().open(published.source, Extra()).load_tokenizer()
    names = published.model.config.vocabulary_map
    assert tokenizer.bos_token_id == names["<|extra_203|>"] and tokenizer.pad_token_id == names["<|endoftext|>"]
    assert tokenizer("<|image start|>red").input_ids[0] == names["<|image start|>"]
    assert len(tokenizer) == max(names.values()) + 1


def test_files_that_are_no_rank_lists(tmp_path):
    (tmp_path / "x.tiktoken").write_text("not base64 at all\n")
    with pytest.raises(IncompleteCheckpoint, match="is no list of base64 tokens and ranks"):
        read_ranks(tmp_path / "x.tiktoken")
    with pytest.raises(IncompleteCheckpoint, match="special token '<x>' gets id 1 instead of 5"):
        build({b"a": 0}, {"<x>": 5}, r"\w+")
