"""A whole Janus small enough to build in a moment: random weights, 4x4 codes, 16 px pictures, a word tokenizer."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import JanusConfig, JanusForConditionalGeneration, PreTrainedTokenizerFast

from csd_pipeline import CSDAutoregressivePipeline, EntropyRelaxation, JacobiDrafter, TVFilter

SPECIAL = (
    "<pad>",
    "<bos>",
    "<eos>",
    "<begin_of_image>",
    "<end_of_image>",
    "<image_placeholder>",
    "<|User|>",
    "<|Assistant|>",
)
WORDS = ("<unk>", "a", "red", "blue", "cube", "dog", "on", "grass", ":", "very", "long")
TOKENS, PIXELS, CODES = 16, 16, 32
PROMPT = "a red cube on grass"


def tiny_tokenizer(pad_token: str | None = "<pad>", max_length: int = 64) -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        pad_token=pad_token,
        model_max_length=max_length,
        extra_special_tokens={"boi_token": "<begin_of_image>"},
    )


def tiny_config(width: int = 32) -> JanusConfig:
    text = {
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": width * 3 // 2,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": len(SPECIAL) + len(WORDS),
        "max_position_embeddings": 96,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    vision = {
        "model_type": "janus_vision_model",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": PIXELS,
        "patch_size": 4,
        "mlp_ratio": 2.0,
        "projection_dim": width,
        "depth": 1,
        "num_image_tokens": TOKENS,
    }
    vq = {
        "model_type": "janus_vqgan",
        "embed_dim": 8,
        "num_embeddings": CODES,
        "base_channels": 32,
        "channel_multiplier": [1, 1, 1],
        "num_res_blocks": 1,
        "latent_channels": 32,
        "num_patches": 4,
        "projection_dim": width,
        "image_token_embed_dim": width,
        "num_hidden_layers": 2,
    }
    return JanusConfig(text_config=text, vision_config=vision, vq_config=vq, image_token_id=5)


def tiny_model(seed: int = 0, width: int = 32) -> JanusForConditionalGeneration:
    """Random weights, with image logits of standard deviation about 2 so that different seeds draw different tokens."""
    torch.manual_seed(seed)
    model = JanusForConditionalGeneration(tiny_config(width)).eval()
    with torch.no_grad():
        for parameter in model.model.generation_head.parameters():
            parameter.normal_(0.0, 0.2)
        for parameter in model.model.language_model.embed_tokens.parameters():
            parameter.normal_(0.0, 1.0)
    return model


def tiny_pipeline(**parts) -> CSDAutoregressivePipeline:
    """A pipeline with every component filled, relaxed decoding; ``parts`` replace components."""
    components = {
        "tokenizer": tiny_tokenizer(),
        "drafter": JacobiDrafter(window=4),
        "relaxation": EntropyRelaxation(lam=0.5),
        "alignment_filter": TVFilter(delta=0.7),
    }
    components |= parts
    if "target" not in components:
        components["target"] = tiny_model()
    pipeline = CSDAutoregressivePipeline(**components)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def write_stock(pipeline: CSDAutoregressivePipeline, folder) -> None:
    """A transformers checkpoint that has never heard of diffusers."""
    pipeline.target.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


def draw(pipeline, prompt=PROMPT, **options) -> torch.Tensor:
    """Token ids [B, 16]; seed 7 and guidance 2 unless given."""
    if "generator" not in options:
        options.setdefault("seed", 7)
    return pipeline(prompt, **{"guidance_scale": 2.0, "output_type": "latent"} | options).images
