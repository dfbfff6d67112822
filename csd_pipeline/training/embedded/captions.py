"""Captions of a picture: mostly the plain form, sometimes the way people type it."""

import numpy as np

from .catalogue import Catalogue

BACKGROUND_KEPT = 0.85
VARIANT_SHARE = 0.35
OPENINGS = ("a picture of", "a photo of", "an image of", "a drawing of", "an emoji of", "picture of")


def canonical_caption(catalogue: Catalogue, subject: int, background: int) -> str:
    """The form used for measuring: "red apple on grass"."""
    return f"{catalogue.subjects[subject].name} {catalogue.backgrounds[background].phrase}"


def random_caption(catalogue: Catalogue, subject: int, background: int, rng: np.random.Generator) -> str:
    """A caption of the pair; about one in seven does not name the background."""
    named = rng.random() < BACKGROUND_KEPT
    if rng.random() >= VARIANT_SHARE:
        caption = canonical_caption(catalogue, subject, background) if named else catalogue.subjects[subject].name
        return with_article(caption) if rng.random() < 0.3 else caption
    return typed_caption(catalogue, subject, background if named else None, rng)


def typed_caption(catalogue: Catalogue, subject: int, background: int | None, rng: np.random.Generator) -> str:
    """A caption the way people type it: synonyms, articles, "a picture of", other words for the background."""
    names = (catalogue.subjects[subject].name, *catalogue.subjects[subject].synonyms)
    caption = str(rng.choice(names)) if rng.random() < 0.6 else names[0]
    if rng.random() < 0.6:
        caption = with_article(caption)
    if rng.random() < 0.15:
        caption = f"{rng.choice(OPENINGS)} {caption}"
    if background is None:
        return caption
    place = catalogue.backgrounds[background]
    phrase = str(rng.choice(place.variants)) if rng.random() < 0.7 else place.phrase
    starts_like_place = phrase.split()[0] in {"on", "in", "at", "with", "under"}
    return f"{caption} {phrase}" if starts_like_place and rng.random() < 0.85 else f"{caption}, {phrase}"


def with_article(words: str) -> str:
    """Puts "a" or "an" before the words."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
