"""Scaled-down models of every family with random weights, each with a reference forward that knows no cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerFast

WORDS = ["red", "cat", "dog", "on", "a", "roof", "blue", "Generate", "an", "image", "of", "following", "prompt"]


@dataclass
class Family:
    """What the tests of all families need.

    Args:
        model: the target, float32, weights far from the initial near-uniform laws.
        tokenizer: in the family's own format.
        reference: ``(prompt ids [S], tokens [T], conditional) -> logits [T + 1, K]`` of the family's own forward
            over the whole unpadded sequence.
        size: (height, width) of the pictures, None for the usual one.
    """

    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerFast
    reference: Callable[[Tensor, Tensor, bool], Tensor]
    size: tuple[int, int] | None = None


def spread(model: torch.nn.Module, std: float = 0.4) -> torch.nn.Module:
    """Random weights large enough for laws that differ from position to position."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=std)
    return model.eval()


def word_tokenizer(special: list[str], named: dict[str, str], bos: str | None = None, words=WORDS):
    """A tokenizer over whole words, ``special`` tokens first (ids from 0), BOS in front if the family has one."""
    vocabulary = {word: i for i, word in enumerate([*special, "<unk>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", **named)


# --- Chameleon and Lumina -------------------------------------------------------------------------------------------

CHAMELEON_CODES = 40
CHAMELEON_SPECIAL = ["<s>", "<pad>", "</s>", "<racm3:break>", "<eoss>", "<reserved08706>", "<image>", "<reserved08799>"]


def chameleon_config(vocabulary_map: dict[str, int], size: int, **changes):
    from transformers import ChameleonConfig

    numbers = {
        "vocab_size": max(vocabulary_map.values()) + 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 512,
        "pad_token_id": vocabulary_map["<pad>"],
        "bos_token_id": vocabulary_map["<s>"],
        "vq_config": {
            "embed_dim": 6,
            "num_embeddings": CHAMELEON_CODES,
            "latent_channels": 6,
            "resolution": size,
            "base_channels": 32,
            "channel_multiplier": [1] * 5,
            "num_res_blocks": 1,
        },
        "vocabulary_map": vocabulary_map,
    }
    return ChameleonConfig(**numbers | changes)


def chameleon_vocabulary(tokenizer) -> dict[str, int]:
    """The tokenizer's names and, behind them in shuffled order, those of the image codes: IMGIMG, letters, Z."""
    names = dict(tokenizer.get_vocab())
    for place, code in enumerate(torch.randperm(CHAMELEON_CODES, generator=torch.Generator().manual_seed(1)).tolist()):
        letters = "".join(chr(ord("A") + int(digit)) for digit in str(code))
        names[f"IMGIMG{letters}Z"] = len(tokenizer) + place
    return names


def chameleon_reference(model, ids: Callable[[Tensor], Tensor], codes: Tensor):
    def reference(prompt: Tensor, tokens: Tensor, conditional: bool) -> Tensor:
        sequence = torch.cat([prompt, ids(tokens)])[None]
        with torch.no_grad():
            hidden = model.model(input_ids=sequence, use_cache=False).last_hidden_state
            return model.lm_head(hidden)[0, len(prompt) - 1 :, codes]

    return reference


def chameleon(**changes) -> Family:
    """2 x 2 codes, 32 x 32 pixels."""
    from csd_pipeline.targets.chameleon_pixels import ChameleonWithPixels

    tokenizer = word_tokenizer(CHAMELEON_SPECIAL, {"bos_token": "<s>", "pad_token": "<pad>"}, bos="<s>")
    names = chameleon_vocabulary(tokenizer)
    model = spread(ChameleonWithPixels(chameleon_config(names, size=64, **changes)))
    codes = torch.tensor([names[_code_name(code)] for code in range(CHAMELEON_CODES)])
    return Family(model, tokenizer, chameleon_reference(model, lambda tokens: codes[tokens], codes))


def lumina(size: tuple[int, int] | None = None, **changes) -> Family:
    """Trained for 96 x 96 pixels here; the square has 6 rows of 6 codes and a line end."""
    from csd_pipeline.targets.chameleon_pixels import LuminaWithPixels

    sizes = [f"<reserved{8800 + n:05d}>" for n in range(1, 10)]
    tokenizer = word_tokenizer([*CHAMELEON_SPECIAL, *sizes], {"bos_token": "<s>", "pad_token": "<pad>"}, bos="<s>")
    names = chameleon_vocabulary(tokenizer)
    config = chameleon_config(names, size=64, **changes)
    config.image_side = 96
    model = spread(LuminaWithPixels(config))
    codes = torch.tensor([names[_code_name(code)] for code in range(CHAMELEON_CODES)])
    ids = torch.cat([codes, torch.tensor([names["<reserved08799>"]])])
    return Family(model, tokenizer, chameleon_reference(model, lambda tokens: ids[tokens], codes), size)


def _code_name(code: int) -> str:
    return "IMGIMG" + "".join(chr(ord("A") + int(digit)) for digit in str(code)) + "Z"


# --- Emu3 -----------------------------------------------------------------------------------------------------------

EMU3_SPECIAL = ["<|extra_203|>", "<pad>", "<|image start|>", "<|image token|>", "<|image end|>", "<|extra_200|>"]


def emu3(size: tuple[int, int] | None = None) -> Family:
    """64 x 64 pixels of 8 x 8 codes and a line end."""
    from transformers import Emu3Config, Emu3ForConditionalGeneration

    words = [*WORDS, "8*8", "6*11", "lowres,", "blurry.", "masterpiece,"]
    tokenizer = word_tokenizer(EMU3_SPECIAL, {"bos_token": "<|extra_203|>", "pad_token": "<pad>"}, words=words)
    codes = 24
    names = dict(tokenizer.get_vocab()) | {"<image>": len(tokenizer) + codes}
    names |= {f"<|visual token {code:06d}|>": len(tokenizer) + code for code in range(codes)}
    config = Emu3Config(
        text_config={
            "vocab_size": max(names.values()) + 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "pad_token_id": 1,
            "bos_token_id": 0,
            "eos_token_id": 4,
        },
        vq_config={
            "codebook_size": codes,
            "base_channels": 32,
            "channel_multiplier": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "hidden_size": 32,
            "attn_resolutions": [],
        },
        vocabulary_map=names,
    )
    config.image_area = 64 * 64
    model = spread(Emu3ForConditionalGeneration(config))
    first, line = len(tokenizer), names["<|extra_200|>"]

    def reference(prompt: Tensor, tokens: Tensor, conditional: bool) -> Tensor:
        ids = torch.where(tokens < codes, first + tokens, line)
        with torch.no_grad():
            logits = model(input_ids=torch.cat([prompt, ids])[None], use_cache=False).logits
        return logits[0, len(prompt) - 1 :, first : first + codes]

    return Family(model, tokenizer, reference, size)


# --- LlamaGen -------------------------------------------------------------------------------------------------------


def llamagen(condition: str) -> Family:
    """4 x 4 codes of 8 x 8 pixels each, head dimension 8."""
    from csd_pipeline.targets.llamagen_network import LlamaGenTarget

    sizes = {"dim": 32, "num_layers": 2, "num_heads": 4, "ffn_dim": 48, "vocabulary": 24, "grid_side": 4, "classes": 10}
    vq = {"embed_dim": 8, "base_channels": 32, "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1}
    tokenizer = word_tokenizer(["<pad>", "</s>"], {"pad_token": "<pad>"}, bos=None)
    text = {"d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 4, "vocab_size": len(tokenizer)}
    text |= {"pad_token_id": 0, "feed_forward_proj": "gated-gelu"}
    extra = {"caption_dim": 24, "condition_slots": 12, "text_config": text} if condition == "text" else {}
    model = spread(LlamaGenTarget(condition, vq_config=vq | {"latent_channels": 32}, **sizes, **extra))
    if condition == "text":
        torch.nn.init.normal_(model.cls_embedding.uncond_embedding)
        for module in model.text_encoder.modules():
            if hasattr(module, "weight") and module.weight.dim() == 2:
                torch.nn.init.normal_(module.weight, std=0.2)
    return Family(model, tokenizer if condition == "text" else None, llamagen_reference(model))


def llamagen_reference(model):
    """A plain forward written from the paper's formulas, one row, no cache, complex rotations."""
    config, weights = model.config, model.state_dict()

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + config.norm_eps).sqrt() * weights[name]

    def rotations(slots: int, count: int) -> Tensor:
        head_dim = config.dim // config.num_heads
        frequency = torch.tensor([config.rope_base ** (-2 * i / (head_dim // 2)) for i in range(head_dim // 4)])
        places = [
            torch.polar(torch.ones(head_dim // 2), torch.cat([frequency * (n // 4), frequency * (n % 4)]))
            for n in range(count)
        ]
        return torch.stack([torch.zeros(head_dim // 2, dtype=torch.complex64)] * slots + places)

    def condition(prompt: Tensor, conditional: bool) -> Tensor:
        if config.condition == "class":
            return weights["cls_embedding.embedding_table.weight"][prompt]
        if conditional:
            features = model.text_encoder(input_ids=prompt[None]).last_hidden_state[0]
        else:
            features = weights["cls_embedding.uncond_embedding"][-len(prompt) :]
        hidden = features @ weights["cls_embedding.cap_proj.fc1.weight"].T
        return torch.nn.functional.gelu(hidden, approximate="tanh") @ weights["cls_embedding.cap_proj.fc2.weight"].T

    @torch.no_grad()
    def reference(prompt: Tensor, tokens: Tensor, conditional: bool) -> Tensor:
        x = torch.cat([condition(prompt, conditional), weights["tok_embeddings.weight"][tokens]])
        turn = rotations(len(prompt), len(tokens))[:, None]
        causal = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        for layer in range(config.num_layers):
            name = f"layers.{layer}."
            mixed = norm(x, name + "attention_norm.weight") @ weights[name + "attention.wqkv.weight"].T
            q, k, v = (part.unflatten(-1, (config.num_heads, -1)) for part in mixed.split(config.dim, -1))
            q, k = (
                torch.view_as_real(torch.view_as_complex(part.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)
                for part in (q, k)
            )
            scores = torch.einsum("ihd,jhd->hij", q, k) / (config.dim // config.num_heads) ** 0.5
            scores = scores.masked_fill(~causal, float("-inf")).softmax(-1)
            x = x + torch.einsum("hij,jhd->ihd", scores, v).flatten(1) @ weights[name + "attention.wo.weight"].T
            y = norm(x, name + "ffn_norm.weight")
            gate = torch.nn.functional.silu(y @ weights[name + "feed_forward.w1.weight"].T)
            x = (
                x
                + (gate * (y @ weights[name + "feed_forward.w3.weight"].T)) @ weights[name + "feed_forward.w2.weight"].T
            )
        return (norm(x, "norm.weight") @ weights["output.weight"].T)[len(prompt) - 1 :]

    return reference


FAMILIES: dict[str, Callable[[], Family]] = {
    "chameleon": chameleon,
    "chameleon-swin": lambda: chameleon(swin_norm=True),
    "lumina": lumina,
    "lumina-wide": lambda: lumina((64, 128)),
    "llamagen-text": lambda: llamagen("text"),
    "llamagen-class": lambda: llamagen("class"),
    "emu3": emu3,
    "emu3-wide": lambda: emu3((48, 88)),
}
