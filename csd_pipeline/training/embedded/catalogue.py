"""What the embedded model can draw: the list of subjects and of backgrounds, and which pairs are held out.

A picture is named by a pair `(subject, background)`: two positions in the lists of `catalogue.json`. The order of
the subjects and the `id` of the backgrounds define the held-out pairs, so neither may change once a model exists.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from importlib import resources


@dataclass(frozen=True)
class Subject:
    """One thing to draw; `emoji` is its label in the emojibase data, `name` the word used in captions."""

    name: str
    emoji: str
    synonyms: tuple[str, ...] = ()

    @property
    def is_flag(self) -> bool:
        return self.emoji.startswith("flag: ")


@dataclass(frozen=True)
class Background:
    """A plain `colour` (r, g, b in 0..255) or a procedural `texture`; `phrase` is how captions name it."""

    id: int
    name: str
    phrase: str
    colour: tuple[int, int, int] | None = None
    texture: str | None = None
    variants: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        return self.colour is not None


@dataclass(frozen=True)
class Catalogue:
    """All subjects and backgrounds of a model."""

    subjects: tuple[Subject, ...]
    backgrounds: tuple[Background, ...]

    def is_held_out(self, subject: int, background: int) -> bool:
        """True for the one pair in twenty that the target model never sees in training."""
        return (subject * 7 + self.backgrounds[background].id * 13) % 20 == 3

    @cached_property
    def plain(self) -> list[int]:
        return [i for i, b in enumerate(self.backgrounds) if b.is_plain]

    @cached_property
    def textured(self) -> list[int]:
        return [i for i, b in enumerate(self.backgrounds) if not b.is_plain]

    @property
    def everywhere(self) -> list[int]:
        return list(range(len(self.backgrounds)))

    def pairs(self, held_out: bool, backgrounds: list[int]) -> list[tuple[int, int]]:
        """Every (subject, background) of one side of the split, for the given backgrounds."""
        return [(s, b) for s in range(len(self.subjects)) for b in backgrounds if self.is_held_out(s, b) == held_out]


def load_catalogue() -> Catalogue:
    """The catalogue that ships with the package."""
    raw = json.loads(resources.files(__package__).joinpath("catalogue.json").read_text(encoding="utf-8"))
    subjects = tuple(Subject(s["name"], s["emoji"], tuple(s["synonyms"])) for s in raw["subjects"])
    backgrounds = tuple(_background(b) for b in raw["backgrounds"])
    return Catalogue(subjects, backgrounds)


def _background(raw: dict) -> Background:
    colour = tuple(raw["colour"]) if "colour" in raw else None
    variants = _plain_variants(raw["name"]) if colour else raw["variants"]
    return Background(raw["id"], raw["name"], raw["phrase"], colour, raw.get("texture"), tuple(variants))


def _plain_variants(name: str) -> list[str]:
    return [f"on a {name} background", f"{name} background", f"on {name} background", f"in front of {name}"]
