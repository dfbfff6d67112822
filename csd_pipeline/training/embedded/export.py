"""Puts the trained parts together and writes them as a stock transformers Janus folder."""

import json
from pathlib import Path

import torch
from transformers import GenerationConfig, JanusForConditionalGeneration, PreTrainedTokenizerFast

from .architecture import janus_config, target_parameters
from .decoder_levels import decoder_parameters
from .pixel_codes import PixelCodes
from .text_tokenizer import BOI_ID, BOS_ID, EOS_ID, PAD_ID


def assemble_model(work_dir: Path, recipe: dict) -> JanusForConditionalGeneration:
    """The model (float32, eval) with whatever has been trained so far in the work directory."""
    model = JanusForConditionalGeneration(janus_config(recipe["model"]))
    model.load_state_dict(torch.load(work_dir / "start" / "model.pt", weights_only=True))
    _overwrite(target_parameters(model), work_dir / "target" / "checkpoint.pt")
    _overwrite(decoder_parameters(model.model.vqmodel), work_dir / "decoder" / "decoder.pt")
    return model.eval()


def _overwrite(parameters: dict[str, torch.nn.Parameter], checkpoint: Path) -> None:
    if not checkpoint.exists():
        return
    trained = torch.load(checkpoint, weights_only=True)["parameters"]
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(trained[name])


def export_model(model: JanusForConditionalGeneration, work_dir: Path, out_dir: Path) -> None:
    """Writes weights in float16, configuration, tokenizer and picture codes to `out_dir`."""
    out_dir.mkdir(parents=True, exist_ok=True)
    half = JanusForConditionalGeneration(model.config).half()
    half.load_state_dict(model.state_dict())
    half.save_pretrained(out_dir)
    PreTrainedTokenizerFast.from_pretrained(work_dir / "start").save_pretrained(out_dir)
    codes = PixelCodes.load(work_dir / "start" / "codes.safetensors")
    codes.codebook = half.model.vqmodel.quantize.embedding.weight.detach().float()
    codes.save(out_dir / "codes.safetensors")
    write_generation_config(out_dir)


def write_generation_config(out_dir: Path) -> None:
    """Janus' image generation looks for the begin-of-image token in `generation_kwargs`."""
    config = GenerationConfig(bos_token_id=BOS_ID, eos_token_id=EOS_ID, pad_token_id=PAD_ID)
    raw = {**config.to_diff_dict(), "generation_kwargs": {"boi_token_id": BOI_ID}}
    text = json.dumps(raw, indent=2, sort_keys=True) + "\n"
    (out_dir / "generation_config.json").write_text(text, encoding="utf-8")


def load_exported(folder: Path) -> tuple[JanusForConditionalGeneration, PreTrainedTokenizerFast, PixelCodes]:
    """Model (float32, eval), tokenizer and codes of an exported folder."""
    model = JanusForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    return model, PreTrainedTokenizerFast.from_pretrained(folder), PixelCodes.load(folder / "codes.safetensors")
