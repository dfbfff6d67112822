"""A tiny Janus with random weights, a tokenizer in Janus' format, and a reference forward without any cache."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import JanusConfig, JanusForConditionalGeneration, PreTrainedTokenizerFast

from csd_pipeline.targets.base import PromptBatch

PAD, BOS, EOS, BOI = 0, 1, 2, 3
WORDS = ["red", "cat", "dog", "on", "a", "roof", "blue", ":", "\n\n"]


def tiny_janus(attention: str = "sdpa") -> JanusForConditionalGeneration:
    """4 x 4 codes of a vocabulary of 24, two decoder layers, float32."""
    config = JanusConfig(
        text_config={
            "model_type": "llama",
            "vocab_size": 40,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "pad_token_id": PAD,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
        },
        vision_config={
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "num_image_tokens": 16,
            "projection_dim": 32,
            "mlp_ratio": 2.0,
        },
        vq_config={
            "num_embeddings": 24,
            "embed_dim": 8,
            "base_channels": 32,
            "channel_multiplier": [1, 1],
            "num_res_blocks": 0,
            "latent_channels": 32,
            "num_patches": 4,
            "image_token_embed_dim": 32,
            "projection_dim": 32,
        },
        image_token_id=4,
    )
    torch.manual_seed(0)
    model = JanusForConditionalGeneration(config).eval()
    for parameter in model.parameters():  # far from the initial near-uniform laws
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    model.set_attn_implementation(attention)
    settings = model.generation_config
    settings.pad_token_id, settings.bos_token_id, settings.eos_token_id = PAD, BOS, EOS
    settings.generation_kwargs = {"boi_token_id": BOI}
    return model


def janus_tokenizer(roles: bool = True) -> PreTrainedTokenizerFast:
    special = ["<pad>", "<bos>", "<eos>", "<begin_of_image>", "<image_placeholder>"]
    special += ["<|User|>", "<|Assistant|>"] if roles else []
    vocabulary = {token: i for i, token in enumerate([*special, "<unk>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", BOS)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
    )
    wrapped.add_special_tokens({"additional_special_tokens": special[3:]})  # a name versions 4 and 5 both know
    return wrapped


def left_padded(*prompts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[PAD] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask


def prompt_batch(ids, mask, guided: bool = True) -> PromptBatch:
    if not guided:
        return PromptBatch(ids, mask)
    keep = (ids == BOS) | (ids == BOI)
    return PromptBatch(ids, mask, torch.where(keep, ids, PAD), mask)


@torch.no_grad()
def reference_logits(model, ids, codes) -> torch.Tensor:
    """[N, V] logits of one unpadded prompt [S] and its codes [N], by transformers' own forward without a cache."""
    embeds = model.get_input_embeddings()(ids[None])
    if len(codes) > 1:
        embeds = torch.cat([embeds, model.prepare_embeddings_for_image_generation(codes[None, :-1])], 1)
    hidden = model.model.language_model(inputs_embeds=embeds, use_cache=False).last_hidden_state
    return model.model.generation_head(hidden[0, len(ids) - 1 :])
