"""Names of results, and writing that never leaves half a file and never replaces one unasked."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PICTURE_ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif"}


@dataclass
class Destination:
    """Where the pictures of a job go.

    Args:
        folder: exists when the job starts.
        name: file name asked for; None makes one from prompt and seed.
        overwrite: replace files of earlier jobs; files of this job are never replaced.
    """

    folder: Path
    name: str | None
    overwrite: bool
    _written: set[Path] = field(default_factory=set)

    @classmethod
    def of(cls, output: str | None, overwrite: bool) -> Destination:
        """From ``-o``: a .png file, or a folder.

        Raises:
            ValueError: a picture format that can't carry the recipe.
            OSError: the folder can't be made or written to.
        """
        path = Path(output or ".").expanduser()
        name = None
        if not path.is_dir() and path.suffix.lower() in _PICTURE_ENDINGS and not str(output).endswith(("/", os.sep)):
            if path.suffix.lower() != ".png":
                raise ValueError(f"-o {output}: pictures are saved as .png, which keeps the recipe; end in .png")
            path, name = path.parent, path.name
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(f"-o {output or '.'}: no permission to write into {path}")
        return cls(path, name, overwrite)

    def write_picture(self, content: bytes, prompt: str, seed: int) -> Path:
        """Write a PNG under its own name, or that name with -1, -2, ...; returns the path used."""
        return self.write(content, self.picture_name(prompt, seed))

    def picture_name(self, prompt: str, seed: int) -> str:
        """The name a picture gets where it is free."""
        return self.name or f"{slug(prompt)}-{seed}.png"

    def write(self, content: bytes, name: str) -> Path:
        names = (path for path in numbered(self.folder / name) if path not in self._written)
        path = write_whole(next(names), content, self.overwrite)
        self._written.add(path)
        return path


def write_whole(path: Path, content: bytes, overwrite: bool) -> Path:
    """Write a file in one piece: under a temporary name first, then renamed. Returns the path used.

    Without ``overwrite`` an existing file stays: the new one is called ``name-1``, ``name-2``, ...
    """
    handle, temporary = tempfile.mkstemp(prefix=".csd-", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # a temporary file is private, a result is not
        if overwrite:
            os.replace(temporary, path)
            return path
        return _rename_to_free(Path(temporary), path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _rename_to_free(temporary: Path, path: Path) -> Path:
    """Linking fails where the name is taken, also when another process took it a moment ago."""
    for candidate in numbered(path):
        try:
            os.link(temporary, candidate)
            return candidate
        except FileExistsError:
            continue
        except OSError:  # a file system without hard links
            if not candidate.exists():
                os.replace(temporary, candidate)
                return candidate
    raise AssertionError("unreachable: there is always a next number")


def numbered(path: Path) -> Iterator[Path]:
    """``path``, then its name with -1, -2, ..."""
    yield path
    for number in itertools.count(1):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")


def slug(prompt: str, length: int = 48) -> str:
    """A file name from a prompt: its letters and digits, whatever the alphabet, joined by ``-``."""
    words = re.sub(r"[\W_]+", "-", prompt.lower()).strip("-")
    return words[:length].strip("-") or "picture"
