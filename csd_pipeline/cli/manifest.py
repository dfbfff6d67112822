"""The list of the pictures of a prompt list: what each file is, and what is still missing."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from .files import write_whole

NAME = "manifest.json"


@dataclass(frozen=True)
class Entry:
    """One finished picture.

    Args:
        index: number of the picture in the job, counted from 0 over all prompts.
        prompt, seed: what it was drawn from.
        file: its name in the folder of the manifest.
        tokens_sha256: digest of its tokens.
    """

    index: int
    prompt: str
    seed: int
    file: str
    tokens_sha256: str


def write_manifest(folder: Path, model: str, entries: list[Entry], total: int, overwrite: bool) -> Path:
    """Write ``manifest.json`` (``-1``, ... beside an older one unless ``overwrite``); returns the path used.

    Args:
        entries: the finished pictures, in any order.
        total: number of pictures of the job; the indices without an entry are listed as missing.
    """
    entries = sorted(entries, key=lambda entry: entry.index)
    missing = sorted(set(range(total)) - {entry.index for entry in entries})
    content = {"model": model, "pictures": [asdict(entry) for entry in entries], "missing": missing}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return write_whole(folder / NAME, text.encode(), overwrite)
