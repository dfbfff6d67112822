"""Tokenizer folders both transformers 4 and 5 read: 5 writes a class name and a list that 4 does not know."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import transformers

_NEW, _KNOWN_TO_ALL = "TokenizersBackend", "PreTrainedTokenizerFast"  # one class under two names


def load_tokenizer(source: str, **hub) -> transformers.PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint, also of a local one that transformers 5 wrote and transformers 4 reads."""
    try:
        return transformers.AutoTokenizer.from_pretrained(source, **hub)
    except ValueError as error:
        if _NEW not in str(error) or not Path(source).is_dir():
            raise
    with tempfile.TemporaryDirectory() as copy:
        for file in Path(source).glob("tokenizer*"):
            shutil.copy(file, copy)
        make_portable(Path(copy))
        return transformers.AutoTokenizer.from_pretrained(copy)


def make_portable(folder: Path) -> None:
    """Rewrite the ``tokenizer_config.json`` of transformers 5 in a form transformers 4 reads too."""
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if config.get("tokenizer_class") != _NEW:
        return
    config["tokenizer_class"] = _KNOWN_TO_ALL
    if not config.get("extra_special_tokens"):
        config["extra_special_tokens"] = config.get("model_specific_special_tokens", {})
    file.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def portable_class(entry: list) -> list:
    """A ``[library, class]`` entry of model_index.json under the name both versions know."""
    return [entry[0], _KNOWN_TO_ALL] if entry[1] == _NEW else entry
