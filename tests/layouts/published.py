"""Scaled-down checkpoints in the layouts people download, written from the random models of the adapter tests.

The names below are those of the published files, spelled out here once more and independently of the package.
"""

from __future__ import annotations

import argparse
import base64
import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from families import chameleon, emu3, llamagen, lumina, spread, word_tokenizer
from helpers_janus import WORDS, tiny_janus
from safetensors.torch import load_file, save_file

DEEPSEEK = {"bos": "<｜begin▁of▁sentence｜>", "eos": "<｜end▁of▁sentence｜>", "pad": "<｜▁pad▁｜>"}


@dataclass
class Published:
    """A checkpoint on disk and the model it was made from.

    Args:
        source: what is given to ``csd convert``.
        model: the target the files were written from.
        tokenizer: its tokenizer; None where the files are the only definition of it.
        prompt: one the tokenizer knows.
        extra: arguments of ``Extra``.
        weights: the file of the decoder's weights.
        key: a stored name in it.
        texts: files without which there is no tokenizer.
    """

    source: Path
    model: torch.nn.Module
    tokenizer: object
    prompt: str
    weights: Path
    key: str
    texts: list[Path] = field(default_factory=list)
    extra: dict = field(default_factory=dict)


def tensors_of(model, prefix: str = "") -> dict[str, torch.Tensor]:
    return {k.removeprefix(prefix): v.clone() for k, v in model.state_dict().items() if k.startswith(prefix)}


def write_json(file: Path, content: dict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")


def read_weights(file: Path) -> dict:
    if file.suffix == ".safetensors":
        return {name: tensor.clone() for name, tensor in load_file(file).items()}  # off the file, to rewrite it
    content = torch.load(file, weights_only=False)
    return next((content[key] for key in ("model", "state_dict") if key in content), content)


def write_weights(file: Path, tensors: dict) -> None:
    if file.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file, {"format": "pt"})
    elif file.name.endswith(".bin") or "consolidated" in file.name:
        torch.save(tensors, file)
    else:
        torch.save({"state_dict" if file.suffix == ".ckpt" else "model": tensors}, file)


def sharded(folder: Path, tensors: dict, suffix: str) -> list[Path]:
    """Two weight files and their index."""
    stem, names = {"safetensors": "model", "bin": "pytorch_model"}[suffix], sorted(tensors)
    files = [f"{stem}-0000{n}-of-00002.{suffix}" for n in (1, 2)]
    folder.mkdir(parents=True, exist_ok=True)
    halves = [names[: len(names) // 2], names[len(names) // 2 :]]
    for file, half in zip(files, halves, strict=True):
        write_weights(folder / file, {name: tensors[name] for name in half})
    weight_map = {name: file for file, half in zip(files, halves, strict=True) for name in half}
    write_json(folder / f"{stem}.{suffix}.index.json", {"metadata": {}, "weight_map": weight_map})
    return [folder / file for file in files]


# --- Janus ----------------------------------------------------------------------------------------------------------


def janus_vq_name(name: str) -> str:
    """transformers' name of a tensor of the VQ model -> the published one."""
    for new, old in (("encoder.down.", "encoder.conv_blocks."), ("decoder.up.", "decoder.conv_blocks.")):
        name = name.replace(new, old)
    for new, old in ((".block.", ".res."), ("mid.block_1", "mid.0"), ("mid.attn_1", "mid.1"), ("mid.block_2", "mid.2")):
        name = name.replace(new, old)
    return name


def janus_original(folder: Path, pad: bool = True, suffix: str = "safetensors") -> Published:
    """deepseek-ai's Janus; ``pad``: whether the tokenizer's settings name the padding and begin-of-image tokens."""
    from transformers import JanusForConditionalGeneration

    config = tiny_janus().config
    config.vq_config.num_res_blocks, config.vq_config.channel_multiplier = 1, [1, 2]
    model = spread(JanusForConditionalGeneration(config))
    own, stored = tensors_of(model), {}
    for name, tensor in own.items():
        if name.startswith("model.vqmodel."):
            stored["gen_vision_model." + janus_vq_name(name.removeprefix("model.vqmodel."))] = tensor
        elif name.startswith("model.language_model.") or name == "lm_head.weight":
            stored["language_model." + name.replace("model.language_model.", "model.")] = tensor
        elif name.startswith("model.vision_model.encoder.layers.0.self_attn."):
            if ".q_proj." in name:
                joint = [own[name.replace("q_proj", letter + "_proj")] for letter in "qkv"]
                kind = name.rsplit(".", 1)[1]
                stored[f"vision_model.vision_tower.blocks.0.attn.qkv.{kind}"] = torch.cat(joint)
            elif ".projection_layer." in name:
                stored["vision_model.vision_tower.blocks.0.attn.proj." + name.rsplit(".", 1)[1]] = tensor
        elif name.startswith("model.vision_model.encoder.layers.0."):
            rest = name.removeprefix("model.vision_model.encoder.layers.0.").replace("layer_norm", "norm")
            stored[f"vision_model.vision_tower.blocks.0.{rest}"] = tensor
        elif name.startswith("model.vision_model.embeddings.patch_embedding."):
            stored["vision_model.vision_tower.patch_embed.proj." + name.rsplit(".", 1)[1]] = tensor
        elif name == "model.vision_model.embeddings.position_embedding.weight":
            stored["vision_model.vision_tower.pos_embed"] = tensor[None]
        elif name.startswith("model.vision_model.post_layernorm."):
            stored["vision_model.vision_tower.norm." + name.rsplit(".", 1)[1]] = tensor
        else:
            for new, old in (
                ("model.generation_aligner.fc1.", "gen_aligner.layers.0."),
                ("model.generation_aligner.hidden_layers.0.", "gen_aligner.layers.2."),
                ("model.aligner.fc1.", "aligner.layers.0."),
                ("model.aligner.hidden_layers.0.", "aligner.layers.2."),
                ("model.generation_head.proj_out.", "gen_head.output_mlp_projector."),
                ("model.generation_head.vision_head.", "gen_head.vision_head."),
                ("model.generation_embeddings.", "gen_embed."),
            ):
                if name.startswith(new):
                    stored[old + name.removeprefix(new)] = tensor
    stored["vision_model.vision_tower.attn_pool.latent"] = torch.zeros(1, 1, 16)
    stored["gen_vision_model.quantize.codebook_used"] = torch.zeros(64)
    files = sharded(folder, stored, suffix)
    text = config.text_config
    write_json(
        folder / "config.json",
        {
            "model_type": "multi_modality",
            "architectures": ["MultiModalityCausalLM"],
            "aligner_config": {
                "cls": "MlpProjector",
                "model_type": "aligner",
                "params": {"depth": 2, "input_dim": 16, "n_embed": 32, "projector_type": "mlp_gelu"},
            },
            "gen_aligner_config": {
                "cls": "MlpProjector",
                "model_type": "gen_aligner",
                "params": {"depth": 2, "input_dim": 8, "n_embed": 32, "projector_type": "mlp_gelu"},
            },
            "gen_head_config": {
                "cls": "vision_head",
                "model_type": "gen_head",
                "params": {"image_token_embed": 32, "image_token_size": 24, "n_embed": 32},
            },
            "gen_vision_config": {
                "cls": "VQ-16",
                "model_type": "gen_vision",
                "params": {"image_token_size": 24, "n_embed": 8},
            },
            "vision_config": {
                "cls": "CLIPVisionTower",
                "model_type": "vision",
                "params": {"image_size": 32, "model_name": "siglip_large_patch16_384", "select_feature": "same"},
            },
            "language_config": {
                "model_type": "llama",
                "torch_dtype": "bfloat16",
                "_attn_implementation": "flash_attention_2",
                "hidden_size": text.hidden_size,
                "intermediate_size": text.intermediate_size,
                "max_position_embeddings": text.max_position_embeddings,
                "num_attention_heads": text.num_attention_heads,
                "num_hidden_layers": text.num_hidden_layers,
                "num_key_value_heads": text.num_key_value_heads,
                "vocab_size": text.vocab_size,
            },
        },
    )
    special = [DEEPSEEK["pad"], DEEPSEEK["bos"], DEEPSEEK["eos"], "<begin_of_image>", "<image_placeholder>"]
    special += ["<|User|>", "<|Assistant|>"]
    named = {f"{name}_token": DEEPSEEK[name] for name in ("bos", "eos", "pad")}
    tokenizer = word_tokenizer(special, named, bos=DEEPSEEK["bos"], words=WORDS)
    tokenizer.add_special_tokens({"additional_special_tokens": special[3:]})
    plain = word_tokenizer(special, {}, words=WORDS)  # BOS is in the published settings, not in the file
    plain.backend_tokenizer.add_special_tokens(special)
    plain.backend_tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "bos_token": DEEPSEEK["bos"]}
    settings |= {"eos_token": DEEPSEEK["eos"], "model_max_length": 16384}
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": ["<image_placeholder>", "<|User|>"]})
    write_json(folder / "tokenizer_config.json", settings | ({"pad_token": DEEPSEEK["pad"]} if pad else {}))
    head = next(file for file in files if "gen_head.vision_head.weight" in read_weights(file))
    texts = [folder / "tokenizer.json"]
    return Published(folder, model, tokenizer, "red cat", head, "gen_head.vision_head.weight", texts)


# --- Chameleon, Anole, Lumina-mGPT ----------------------------------------------------------------------------------


def vqgan_file(folder: Path, model) -> Path:
    """Meta's vqgan.ckpt and vqgan.yaml, the discriminator of the training included."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = tensors_of(model, "model.vqmodel.")
    tensors = {k: v for k, v in tensors.items() if k.split(".")[0] in VQGAN_PARTS}
    write_weights(folder / "vqgan.ckpt", tensors | {"loss.discriminator.main.0.weight": torch.zeros(2, 3, 4, 4)})
    (folder / "vqgan.yaml").write_text(
        "model:\n  base_learning_rate: 4.5e-06\n  target: taming.models.vqgan.VQModel\n  params:\n    embed_dim: 6\n"
        "    n_embed: 40\n    ddconfig:\n      double_z: false\n      z_channels: 6\n      resolution: 64\n",
        encoding="utf-8",
    )
    return folder / "vqgan.ckpt"


VQGAN_PARTS = ("encoder", "decoder", "quantize", "quant_conv", "post_quant_conv")


def heads_alike(model) -> None:
    """Meta keeps one query and one key norm for all heads of a layer."""
    with torch.no_grad():
        for layer in model.model.layers:
            for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
                norm.weight.copy_(torch.rand_like(norm.weight[:1]) + 0.5)
                norm.bias.copy_(torch.randn_like(norm.bias[:1]))


def chameleon_official(folder: Path) -> Published:
    """Meta's folder: models/7b with one .pth, tokenizer with three files."""
    part = chameleon()
    model, heads = part.model, 4
    heads_alike(model)
    stored = {}
    for name, tensor in tensors_of(model).items():
        if ".vqmodel." in name:
            continue
        for new, old in (
            ("model.", ""),
            ("embed_tokens", "tok_embeddings"),
            ("lm_head", "output"),
            ("self_attn.q_norm", "attention.q_normalization"),
            ("self_attn.k_norm", "attention.k_normalization"),
            ("self_attn.q_proj", "attention.wq"),
            ("self_attn.k_proj", "attention.wk"),
            ("self_attn.v_proj", "attention.wv"),
            ("self_attn.o_proj", "attention.wo"),
            ("mlp.gate_proj", "feed_forward.w1"),
            ("mlp.down_proj", "feed_forward.w2"),
            ("mlp.up_proj", "feed_forward.w3"),
            ("input_layernorm", "attention_norm"),
            ("post_attention_layernorm", "ffn_norm"),
        ):
            name = name.replace(new, old)
        if "normalization" in name:  # first half and second half of a head -> neighbours
            first, second = tensor[0].chunk(2)
            tensor = torch.stack([first, second], 1).flatten()
        elif ".wq." in name or ".wk." in name:
            halves = [head.chunk(2) for head in tensor.chunk(heads)]
            tensor = torch.cat([torch.stack([first, second], 1).flatten(0, 1) for first, second in halves])
        stored[name] = tensor
    weights = folder / "models" / "7b" / "consolidated.pth"
    weights.parent.mkdir(parents=True)
    write_weights(weights, stored)
    numbers = {"dim": 32, "n_layers": 2, "n_heads": heads, "norm_eps": 1e-5, "rope_theta": 10000.0}
    numbers |= {"swin_norm": False, "qk_normalization": True, "vocab_size": 64}
    write_json(weights.parent / "params.json", {"model": numbers, "model_parallel_size": 1})
    vqgan_file(folder / "tokenizer", model)
    names = dict(model.config.vocabulary_map)
    names["<reserved08707>"] = names.pop("<image>")
    content = json.loads(part.tokenizer.backend_tokenizer.to_str())
    content["model"]["vocab"], content["post_processor"] = names, None
    write_json(folder / "tokenizer" / "text_tokenizer.json", content)
    texts = [folder / "tokenizer" / "text_tokenizer.json"]
    return Published(folder, model, part.tokenizer, "red cat", weights, "layers.1.attention.wq.weight", texts)


def chameleon_folder(folder: Path, decoder: bool = False, suffix: str = "safetensors") -> Published:
    """transformers' Chameleon; with ``decoder`` as Anole's conversions keep it, else beside the folder."""
    left_out = "no tensor" if decoder else ".vqmodel.decoder."
    return _of_transformers(folder, chameleon(), "ChameleonForConditionalGeneration", left_out, suffix)


def lumina_folder(folder: Path) -> Published:
    """Lumina-mGPT: no VQ model in the folder at all."""
    return _of_transformers(folder, lumina(), "ChameleonXLLMXForConditionalGeneration", ".vqmodel.")


def _of_transformers(folder: Path, part, architecture: str, left_out: str, suffix: str = "safetensors") -> Published:
    tensors = {name: tensor for name, tensor in tensors_of(part.model).items() if left_out not in name}
    decoder = any(".vqmodel.decoder." in name for name in tensors)
    folder.mkdir(parents=True)
    files = sharded(folder, tensors, suffix)
    part.model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"architectures": [architecture]})
    part.tokenizer.save_pretrained(folder)
    extra = {} if decoder else {"vq": vqgan_file(folder.with_name(folder.name + "-vq"), part.model)}
    key = "model.layers.1.self_attn.q_proj.weight"
    weights = next(file for file in files if key in read_weights(file))
    return Published(folder, part.model, part.tokenizer, "red cat", weights, key, [folder / "tokenizer.json"], extra)


# --- Emu3 -----------------------------------------------------------------------------------------------------------

EMU3_MERGES = [b"re", b"red", b"ca", b"cat", b" cat", b"ow", b"low", b"res"]


def emu3_original(folder: Path) -> Published:
    """BAAI's Emu3-Gen and Emu3-VisionTokenizer."""
    from transformers import Emu3Config, Emu3ForConditionalGeneration

    ranks = [bytes([byte]) for byte in range(256)] + [b" c", b" ca", *EMU3_MERGES]
    codes, start = 24, len(ranks)
    vision = ["<|image token|>", "<|image start|>", "<|image end|>"]
    vision += [f"<|visual token {code:06d}|>" for code in range(codes)]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{n}|>" for n in range(205)), *vision]
    ids = {name: start + n for n, name in enumerate(special)}
    text = {
        "vocab_size": start + len(special),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "pad_token_id": ids["<|endoftext|>"],
        "bos_token_id": ids["<|extra_203|>"],
        "eos_token_id": ids["<|extra_204|>"],
    }
    vq = {"codebook_size": codes, "base_channels": 32, "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1}
    config = Emu3Config(
        text_config=text, vq_config=vq | {"hidden_size": 32, "attn_resolutions": [3]}, vocabulary_map=ids
    )
    config.image_area = 64 * 64
    model = spread(Emu3ForConditionalGeneration(config))
    stored = {name.replace("model.text_model.", "model."): tensor for name, tensor in tensors_of(model).items()}
    stored = {name: tensor for name, tensor in stored.items() if ".vqmodel." not in name}
    folder.mkdir(parents=True)
    files = sharded(folder, stored, "safetensors")
    write_json(
        folder / "config.json",
        text
        | {"model_type": "Emu3", "architectures": ["Emu3ForCausalLM"], "image_area": 64 * 64, "rope_scaling": None},
    )
    lines = [base64.b64encode(token) + f" {rank}".encode() for rank, token in enumerate(ranks)]
    (folder / "emu3.tiktoken").write_bytes(b"\n".join(lines) + b"\n")
    (folder / "emu3_vision_tokens.txt").write_text("\n".join(vision) + "\n", encoding="utf-8")
    pictures = folder.with_name(folder.name + "-vq")
    pictures.mkdir()
    write_weights(pictures / "model.safetensors", _emu3_vq(model))
    numbers = {"codebook_size": codes, "ch": 32, "ch_mult": [1, 1, 1, 1], "num_res_blocks": 1, "attn_resolutions": [3]}
    numbers |= {"embed_dim": 4, "z_channels": 4, "double_z": False, "temporal_downsample_factor": 4}
    write_json(pictures / "config.json", numbers | {"model_type": "Emu3VisionVQ"})
    key = "model.layers.1.self_attn.q_proj.weight"
    weights = next(file for file in files if key in read_weights(file))
    texts = [folder / "emu3.tiktoken", folder / "emu3_vision_tokens.txt"]
    return Published(folder, model, None, "red cat", weights, key, texts, {"vq": pictures})


def emu3_folder(folder: Path, former: bool = False) -> Published:
    """transformers' Emu3; ``former``: with the names its first versions wrote, which published folders still have."""
    part = emu3()
    tensors = tensors_of(part.model)
    if former:
        text = {
            n.replace("model.text_model.", "text_model.model."): t for n, t in tensors.items() if "vqmodel" not in n
        }
        tensors = {n.replace("model.vqmodel.", "vqmodel."): t for n, t in tensors.items() if "vqmodel" in n} | text
        tensors["text_model.lm_head.weight"] = tensors.pop("lm_head.weight")
    files = sharded(folder, tensors, "safetensors")
    part.model.config.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"architectures": ["Emu3ForConditionalGeneration"]})
    part.tokenizer.save_pretrained(folder)
    key = f"{'text_model.model' if former else 'model.text_model'}.layers.1.self_attn.q_proj.weight"
    weights = next(file for file in files if key in read_weights(file))
    return Published(folder, part.model, part.tokenizer, "red cat", weights, key, [folder / "tokenizer.json"])


def _emu3_vq(model) -> dict[str, torch.Tensor]:
    stored = {}
    for name, tensor in tensors_of(model, "model.vqmodel.").items():
        name = name.replace("down_block.down.", "down.").replace("up_block.up.", "up.")
        name = name.replace("middle_block.attn_norm.", "mid.attn_1.norm.").replace("middle_block.", "mid.")
        if ".attn_norms." in name:
            name = name.replace(".attn_norms.0.", ".attn.0.norm.").replace(".attn_norms.1.", ".attn.1.norm.")
        for letter in "qkv":
            name = name.replace(f".{letter}_proj.", f".{letter}.")
        name = name.replace(".out_proj.", ".proj_out.")
        if name.split(".")[-2] in ("q", "k", "v", "proj_out") and tensor.dim() == 2:
            tensor = tensor[..., None, None]
        stored[name] = tensor
    return stored


# --- LlamaGen -------------------------------------------------------------------------------------------------------


def llamagen_file(folder: Path, condition: str) -> Published:
    """c2i_*.pt or t2i_*.pt as training writes them, vq_ds16_*.pt, and for text a whole T5."""
    from transformers import T5Config, T5ForConditionalGeneration

    part = llamagen(condition)
    model = part.model
    folder.mkdir(parents=True)
    stored = {k: v for k, v in tensors_of(model).items() if not k.startswith(("vq.", "text_encoder."))}
    stored["freqs_cis"] = torch.zeros(model.config.condition_slots + 16, 4, 2)
    if condition == "class":
        stored["freqs_cis"] = torch.zeros(1 + 16, 4, 2)
    weights = folder / ("t2i_tiny.pt" if condition == "text" else "c2i_tiny.pt")
    torch.save({"model": stored, "steps": 3, "args": argparse.Namespace(gpt_model="GPT-XL")}, weights)
    vq = {janus_vq_name(name): tensor for name, tensor in tensors_of(model, "vq.").items()}
    vq["quantize.codebook_used"] = torch.zeros(64)
    torch.save({"model": vq}, folder / "vq_ds16.pt")
    extra, texts = {"vq": folder / "vq_ds16.pt"}, []
    if condition == "text":
        whole = T5ForConditionalGeneration(T5Config(**model.config.text_config))
        whole.load_state_dict(tensors_of(model, "text_encoder."), strict=False)
        place = folder / "flan-t5"
        whole.save_pretrained(place)
        part.tokenizer.save_pretrained(place)
        extra["text_encoder"], texts = place, [place / "tokenizer.json"]
    prompt = "red cat" if condition == "text" else "class 3"
    return Published(weights, model, part.tokenizer, prompt, weights, "layers.1.attention.wqkv.weight", texts, extra)


LAYOUTS = {
    "janus-original": janus_original,
    "janus-original-bin-no-pad": lambda folder: janus_original(folder, pad=False, suffix="bin"),
    "chameleon-official": chameleon_official,
    "chameleon-folder": chameleon_folder,
    "chameleon-folder-bin": lambda folder: chameleon_folder(folder, suffix="bin"),
    "anole-folder": lambda folder: chameleon_folder(folder, decoder=True),
    "lumina-folder": lumina_folder,
    "emu3-folder": emu3_folder,
    "emu3-folder-former-names": lambda folder: emu3_folder(folder, former=True),
    "emu3-original": emu3_original,
    "llamagen-class": lambda folder: llamagen_file(folder, "class"),
    "llamagen-text": lambda folder: llamagen_file(folder, "text"),
}
WITHOUT_EXTRA = ("janus-original", "janus-original-bin-no-pad", "chameleon-official", "anole-folder")
WITHOUT_EXTRA += ("emu3-folder", "emu3-folder-former-names")
