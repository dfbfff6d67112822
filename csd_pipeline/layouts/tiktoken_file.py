"""A tokenizer from a ranked list of byte strings (a .tiktoken file) and a list of special tokens."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from csd_pipeline.weight_files import IncompleteCheckpoint


def read_ranks(file: Path) -> dict[bytes, int]:
    """Byte strings and their ranks. Raises IncompleteCheckpoint if the file is no such list."""
    try:
        lines = (line.split() for line in file.read_bytes().splitlines() if line)
        return {base64.b64decode(token): int(rank) for token, rank in lines}
    except (ValueError, binascii.Error) as error:
        raise IncompleteCheckpoint(f"{file} is no list of base64 tokens and ranks; download it again") from error


def build(ranks: dict[bytes, int], special: dict[str, int], pattern: str, **named: str) -> PreTrainedTokenizerFast:
    """The tokenizer.

    Args:
        ranks: byte strings by rank, which is also their id; lower ranks merge first.
        special: further tokens by name, read as one wherever they stand in a text.
        pattern: regular expression of the pieces a text is cut into before merging.
        named: ``bos_token`` and the like.
    """
    written = {token: "".join(_LETTERS[byte] for byte in token) for token in ranks}
    vocabulary = {written[token]: rank for token, rank in ranks.items()}
    merges = []
    for token in sorted(ranks, key=ranks.get):
        halves = ((token[:i], token[i:]) for i in range(1, len(token)))
        pairs = [pair for pair in halves if pair[0] in ranks and pair[1] in ranks]
        merges += [
            (written[left], written[right]) for left, right in sorted(pairs, key=lambda p: (ranks[p[0]], ranks[p[1]]))
        ]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, fuse_unk=False, ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    ids = {name: tokenizer.token_to_id(name) for name in special}
    if ids != special:
        name = next(name for name in special if ids[name] != special[name])
        raise IncompleteCheckpoint(f"special token {name!r} gets id {ids[name]} instead of {special[name]}")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


def _byte_letters() -> dict[int, str]:
    """The printable letter byte-level tokenizers write for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


_LETTERS = _byte_letters()
