"""Tokenizers of published folders, taken as their file says and given the special tokens their own code relied on."""

from __future__ import annotations

from pathlib import Path

from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from csd_pipeline.checkpoint import check_tokenizer
from csd_pipeline.tokenizer_files import load_tokenizer
from csd_pipeline.weight_files import read_json

_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def from_json(file: Path, **special: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a tokenizers file, BOS in front of every text; ``special`` tokens it does not have are left out.

    Raises:
        IncompleteCheckpoint: no such file, or broken.
    """
    known = {entry["content"] for entry in read_json(file).get("added_tokens", ())} | set(
        read_json(file).get("model", {}).get("vocab", ())
    )
    known_special = {name: token for name, token in special.items() if token in known}
    return with_bos(PreTrainedTokenizerFast(tokenizer_file=str(file), **known_special))


def from_folder(folder: Path, **fallback: str) -> PreTrainedTokenizerFast:
    """The tokenizer.json of a folder, with the special tokens of its tokenizer_config.json or, where that names none,
    of ``fallback``.

    The class named there is not asked: it would split text by rules of its own.

    Raises:
        IncompleteCheckpoint: no tokenizer.json, or a broken one.
    """
    check_tokenizer(folder)
    named, further = {}, []
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        content = read_json(folder / name) if (folder / name).is_file() else {}
        named |= {key: _text(content[key]) for key in _TOKENS if content.get(key)}
        further += map(_text, content.get("additional_special_tokens") or ())
    tokenizer = from_json(folder / "tokenizer.json", **fallback | named)
    known = tokenizer.get_vocab()
    tokenizer.add_special_tokens({"additional_special_tokens": [t for t in dict.fromkeys(further) if t in known]})
    return tokenizer


def _text(token: str | dict) -> str:
    return token["content"] if isinstance(token, dict) else token


def as_named(folder: Path):
    """The tokenizer of a folder, by the class its settings name.

    Raises:
        IncompleteCheckpoint: there is none.
    """
    check_tokenizer(folder)
    return load_tokenizer(str(folder))


def with_bos(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Texts begin with BOS, as the published code encodes them, whatever the file says."""
    if tokenizer.bos_token_id is None or tokenizer("a", verbose=False).input_ids[:1] == [tokenizer.bos_token_id]:
        return tokenizer
    bos = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, tokenizer.bos_token_id)]
    )
    return tokenizer
