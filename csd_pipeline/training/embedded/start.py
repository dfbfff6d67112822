"""The starting point of a training: tokenizer, picture codes and initial weights, from scratch or from a model."""

from pathlib import Path

import numpy as np
import torch
from transformers import JanusForConditionalGeneration, PreTrainedTokenizerFast

from .architecture import copy_target, inherit_rows, new_model
from .dataset import StickerDataset
from .decoder_levels import copy_decoder
from .history import read_history, write_history
from .pixel_codes import PixelCodes, learn_codes, recycle_codes, to_patches
from .text_tokenizer import learn_tokenizer

CODES_STEP = 1_000_000_001


def prepare_start(dataset: StickerDataset, recipe: dict, work_dir: Path, init: Path | None) -> Path:
    """Writes `work_dir/start`: tokenizer files, `codes.safetensors`, `training.json`, `model.pt`; keeps a complete one.

    `init` is a model folder with `codes.safetensors` to continue from; its least used codes are moved to what the
    present backgrounds need.
    """
    folder = work_dir / "start"
    if (folder / "model.pt").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    patches = _patches(dataset, recipe)
    generator = torch.Generator().manual_seed(recipe["seed"])
    numbers = recipe["codes"]
    if init is None:
        tokenizer = learn_tokenizer(dataset.catalogue, recipe["model"]["vocabulary"])
        codes = learn_codes(patches, numbers["count"], numbers["iterations"], generator)
        model = new_model(recipe["model"], codes, recipe["seed"])
    else:
        tokenizer, codes = PreTrainedTokenizerFast.from_pretrained(init), _codes_of(init)
        changed = recycle_codes(codes, patches[:102_400], numbers["recycled_on_warm_start"], generator)
        model = new_model(recipe["model"], codes, recipe["seed"])
        source = JanusForConditionalGeneration.from_pretrained(init, dtype=torch.float32)
        copy_target(model, source)
        copy_decoder(model.model.vqmodel, source.model.vqmodel)
        inherit_rows(model, codes, changed)
    tokenizer.save_pretrained(folder)
    codes.save(folder / "codes.safetensors")
    write_history(folder, read_history(init))
    torch.save(model.state_dict(), folder / "model.pt")
    return folder


def _codes_of(init: Path) -> PixelCodes:
    path = Path(init) / "codes.safetensors"
    if not path.exists():
        raise FileNotFoundError(
            f"{init} has no codes.safetensors, so its picture tokens have no known meaning and training cannot go on "
            "from it. Give a folder written by this command, or start without `init`."
        )
    return PixelCodes.load(path)


def _patches(dataset: StickerDataset, recipe: dict) -> torch.Tensor:
    """Patches (n * 256, 48) of pictures of trained pairs."""
    count = recipe["codes"]["pictures"]
    pictures = [dataset.sample(recipe["seed"], CODES_STEP, index).picture for index in range(count)]
    return torch.cat([to_patches(np.stack(pictures[i : i + 500])) for i in range(0, count, 500)])
