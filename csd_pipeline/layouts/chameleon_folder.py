"""Chameleon and Lumina-mGPT folders of transformers without a picture decoder: that lies in a file of its own."""

from __future__ import annotations

from pathlib import Path

from csd_pipeline.checkpoint import target_class
from csd_pipeline.weight_files import describe, read_json, shards

from . import vqgan
from .base import Extra, Layout, OpenCheckpoint, Piece, command
from .names import renamer
from .tokenizers import as_named


class ChameleonFolder(Layout):
    title = "Chameleon or Lumina-mGPT of transformers, with its picture decoder elsewhere"

    def recognises(self, place: Path, config: dict) -> bool:
        if config.get("model_type") != "chameleon":
            return False
        return not any(".vqmodel.decoder." in name for file in shards(place) for name in describe(file))

    def open(self, place: Path, extra: Extra) -> OpenCheckpoint:
        config = read_json(place / "config.json")
        pieces, lacks = [Piece(shards(place), renamer([]))], None
        if extra.vq is None:
            lacks = f"{place} holds no picture decoder; {command(place, '--vq vqgan.ckpt')} ({vqgan.ADVICE})"
        else:
            pieces.append(vqgan.piece(vqgan.vq_file(extra.vq)))
        return OpenCheckpoint(
            self.title,
            place,
            lambda: _build(place, config),
            pieces,
            load_tokenizer=lambda: as_named(extra.tokenizer or place),
            lacks=lacks,
        )


def _build(place: Path, config: dict):
    from transformers import ChameleonConfig

    from csd_pipeline.targets.lumina import trained_side

    model_class = target_class(config, place)
    settings = ChameleonConfig.from_pretrained(place)
    if model_class.__name__ == "LuminaWithPixels" and not getattr(settings, "image_side", None):
        settings.image_side = trained_side(place.name)  # the name is lost in the next folder
    return model_class(settings)
