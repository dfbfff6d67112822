"""Puts the trained parts together and writes them as a stock transformers Janus folder."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import GenerationConfig, JanusForConditionalGeneration, PreTrainedTokenizerFast

from .architecture import janus_config, target_parameters
from .decoder_levels import decoder_parameters
from .pixel_codes import PixelCodes
from .text_tokenizer import BOI, BOI_ID, BOS_ID, EOI, EOS_ID, IMAGE, PAD_ID


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
    write_for_older_transformers(out_dir, model.config.text_config.rope_parameters["rope_theta"])
    for path in out_dir.iterdir():
        path.chmod(0o644)  # safetensors writes files that only their owner may read


def write_for_older_transformers(out_dir: Path, rope_theta: float) -> None:
    """Adds what transformers 4 reads: the rope base on its own, the special tokens as a table, the old class name."""
    _edit_json(out_dir / "config.json", lambda config: config["text_config"].update(rope_theta=rope_theta))

    def name_tokens(config: dict) -> None:
        config["extra_special_tokens"] = {"image_token": IMAGE, "boi_token": BOI, "eoi_token": EOI}
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
        config["add_prefix_space"] = True  # else version 4 overrules the setting in tokenizer.json
        config.pop("model_specific_special_tokens", None)

    _edit_json(out_dir / "tokenizer_config.json", name_tokens)


def _edit_json(path: Path, change: Callable[[dict], None]) -> None:
    config = json.loads(path.read_text(encoding="utf-8"))
    change(config)
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_generation_config(out_dir: Path, sampling: dict | None = None) -> None:
    """Special tokens, and the best `{"guidance": ..., "temperature": ...}` once a sweep has found it.

    Janus' image generation looks for the begin-of-image token in `generation_kwargs`; top-k 0 switches off
    transformers' own habit of keeping the 50 most probable tokens.
    """
    config = GenerationConfig(bos_token_id=BOS_ID, eos_token_id=EOS_ID, pad_token_id=PAD_ID)
    raw = {**config.to_diff_dict(), "generation_kwargs": {"boi_token_id": BOI_ID}, "do_sample": True, "top_k": 0}
    if sampling is not None:
        raw |= {"guidance_scale": sampling["guidance"], "temperature": sampling["temperature"]}
    text = json.dumps(raw, indent=2, sort_keys=True) + "\n"
    (out_dir / "generation_config.json").write_text(text, encoding="utf-8")


def load_exported(folder: Path) -> tuple[JanusForConditionalGeneration, PreTrainedTokenizerFast, PixelCodes]:
    """Model (float32, eval), tokenizer and codes of an exported folder."""
    model = JanusForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    return model, PreTrainedTokenizerFast.from_pretrained(folder), PixelCodes.load(folder / "codes.safetensors")
