"""A file that belongs to a rule and travels beside its config."""

from __future__ import annotations

from pathlib import Path


class SavedFile:
    """Mix-in: ``save_pretrained`` also writes the file, ``from_pretrained`` reads it again where it is found.

    A class sets ``file_name`` and implements :meth:`write_file` (which may write nothing) and :meth:`read_file`.
    """

    file_name: str

    def write_file(self, path: Path) -> None:
        raise NotImplementedError

    def read_file(self, path: Path) -> None:
        raise NotImplementedError

    def save_pretrained(self, save_directory, *args, **kwargs):
        super().save_pretrained(save_directory, *args, **kwargs)
        path = Path(save_directory) / self.file_name
        path.unlink(missing_ok=True)  # of an earlier save into the same folder
        self.write_file(path)

    @classmethod
    def from_pretrained(cls, folder=None, subfolder=None, **kwargs):
        rule = super().from_pretrained(folder, subfolder=subfolder, **kwargs)
        path = Path(folder, subfolder or "", cls.file_name)
        if path.is_file():
            (rule[0] if isinstance(rule, tuple) else rule).read_file(path)
        return rule
