"""The diffusers pipeline: target, tokenizer and the three parts of a method as swappable, savable components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers.image_processor import VaeImageProcessor
from diffusers.utils import BaseOutput

from . import prompts as prompt_texts
from .checkpoint import check_keys
from .checks import require_choice, require_integer
from .decoding import Progress, Trace, Warp, decode
from .drafters import JacobiDrafter
from .loading import PARTS, PipelineLoading
from .pixels import decode_pixels
from .presets import CALL_KNOBS, build_parts, read_preset
from .recipe import make_recipes
from .relaxation import Exact
from .seeds import image_seeds
from .targets import PromptBatch, adapter_for

OUTPUT_TYPES = ("pil", "np", "pt", "latent")


@dataclass
class CSDPipelineOutput(BaseOutput):
    """Result of a call.

    Args:
        images: list of PIL images, or an array [B, H, W, 3] / tensor [B, 3, H, W] in 0..1, or token ids [B, N] int64.
        traces: one :class:`~csd_pipeline.Trace` per image.
        recipes: one dict per image with everything needed to draw the same tokens again.
        complete: False when the run was interrupted.
    """

    images: object
    traces: list[Trace]
    recipes: list[dict]
    complete: bool = True


class CSDAutoregressivePipeline(PipelineLoading):
    """Autoregressive text-to-image with speculative decoding.

    Args:
        target: the model, e.g. ``transformers.JanusForConditionalGeneration``.
        tokenizer: its tokenizer; may be None when prompts are given as ids.
        drafter: who proposes tokens; None decodes one token per forward.
        relaxation: acceptance rule; None is exact.
        alignment_filter: where the rule may act; None everywhere.
        default_guidance_scale, default_temperature, default_top_k, default_top_p: used where a call gives none; None
            is the published setting of the model family.

    Raises:
        ValueError: no adapter for the target, or weights that are not all there.
    """

    model_cpu_offload_seq = "target"
    _optional_components = ["tokenizer", "drafter", "relaxation", "alignment_filter"]
    _callback_tensor_inputs = ["latents"]

    def __init__(
        self,
        target,
        tokenizer,
        drafter,
        relaxation,
        alignment_filter,
        default_guidance_scale: float | None = None,
        default_temperature: float | None = None,
        default_top_k: int | None = None,
        default_top_p: float | None = None,
    ):
        super().__init__()
        self.register_modules(
            target=target,
            tokenizer=tokenizer,
            drafter=drafter,
            relaxation=relaxation,
            alignment_filter=alignment_filter,
        )
        self.register_to_config(
            default_guidance_scale=default_guidance_scale,
            default_temperature=default_temperature,
            default_top_k=default_top_k,
            default_top_p=default_top_p,
        )
        self.image_processor = VaeImageProcessor(vae_scale_factor=1)
        self._guidance_scale, self._num_timesteps, self._interrupt = 1.0, 0, False
        adapter_for(target)  # an unsupported model is refused here, not in the first call
        source = Path(str(getattr(target, "name_or_path", "") or "."))
        if source.name and source.is_dir() and not getattr(target, "is_quantized", False):
            check_keys(target, source)

    def load_preset(self, name: str) -> None:
        """Replace drafter, relaxation, filter and the sampling defaults by those of a preset.

        Raises:
            ValueError: unknown preset; the nearest name is offered.
        """
        preset = read_preset(name)
        self.register_modules(**build_parts(preset))
        self.register_to_config(**{f"default_{knob}": value for knob, value in preset["call"].items()})

    @property
    def guidance_scale(self) -> float:
        return self._guidance_scale

    @property
    def do_classifier_free_guidance(self) -> bool:
        return self._guidance_scale != 1

    @property
    def num_timesteps(self) -> int:
        """Passes (target forwards, the prefill included) of the call so far."""
        return self._num_timesteps

    @property
    def interrupt(self) -> bool:
        return self._interrupt

    def encode_prompt(
        self,
        prompt: str | list[str] | None = None,
        num_images_per_prompt: int = 1,
        device: torch.device | None = None,
        negative_prompt: str | list[str] | None = None,
        prompt_ids: torch.Tensor | None = None,
        prompt_attention_mask: torch.Tensor | None = None,
        negative_prompt_ids: torch.Tensor | None = None,
        negative_prompt_attention_mask: torch.Tensor | None = None,
    ):
        """Left-padded ids and masks [P * num_images_per_prompt, S] (int64) of the prompts and of their guidance rows.

        Given ids are only repeated. Raises ValueError without a tokenizer where one is needed.
        """
        device = device or self._execution_device
        if prompt_ids is None:
            texts = prompt_texts.check_prompts(prompt, negative_prompt)
            if self.tokenizer is None:
                raise ValueError("this pipeline has no tokenizer; give prompt_ids, or load one")
            encoded = prompt_texts.encode(adapter_for(self.target), self.tokenizer, texts, negative_prompt)
            prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask = encoded
        if prompt_attention_mask is None:
            prompt_attention_mask = torch.ones_like(prompt_ids)
        if negative_prompt_ids is None and self.tokenizer is not None:
            negative_prompt_ids = adapter_for(self.target).unconditional(prompt_ids, self.tokenizer)
        if negative_prompt_attention_mask is None and negative_prompt_ids is not None:
            negative_prompt_attention_mask = prompt_attention_mask
        rows = (prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask)
        rows = [prompt_texts.repeat_rows(row, num_images_per_prompt, device) for row in rows]
        prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask = rows
        return prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask

    def check_inputs(self, num_images_per_prompt, height, width, output_type, callback_on_step_end_tensor_inputs) -> None:
        """Refuse bad arguments before the model runs. Raises ValueError naming the argument and what is allowed."""
        require_integer("num_images_per_prompt", num_images_per_prompt, 1)
        require_choice("output_type", output_type, OUTPUT_TYPES)
        size = adapter_for(self.target).image_size
        if (height or size[0], width or size[1]) != size:
            raise ValueError(f"this model draws {size[1]}x{size[0]} pixels, got width={width}, height={height}; leave them out")
        for name in callback_on_step_end_tensor_inputs:
            require_choice("callback tensor", name, self._callback_tensor_inputs)

    @torch.no_grad()
    def __call__(
        self,
        prompt: str | list[str] | None = None,
        negative_prompt: str | list[str] | None = None,
        height: int | None = None,
        width: int | None = None,
        num_images_per_prompt: int = 1,
        guidance_scale: float | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | list[torch.Generator] | None = None,
        seed: int | list[int] | None = None,
        preset: str | None = None,
        prompt_ids: torch.Tensor | None = None,
        prompt_attention_mask: torch.Tensor | None = None,
        negative_prompt_ids: torch.Tensor | None = None,
        negative_prompt_attention_mask: torch.Tensor | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: Callable | None = None,
        callback_on_step_end_tensor_inputs: list[str] = ("latents",),
        record_maps: bool = False,
    ):
        """Draw images.

        Args:
            prompt: text or list of texts; may be empty.
            negative_prompt: text (or one per prompt) the guidance moves away from; None uses the family's empty prompt.
            height, width: pixels; only what the model draws is accepted.
            num_images_per_prompt: images per prompt.
            guidance_scale: classifier-free guidance, >= 0; 1 is off (half the work).
            temperature: >= 0; 0 is greedy.
            top_k: 0 is off.
            top_p: in [0, 1]; 1 is off.
            generator: every image draws its seed from it; or a list, one per image.
            seed: 64-bit; image i uses ``seed + i``; or a list, one per image.
            preset: method and numbers of this call, see ``csd_pipeline/presets``; overrides the pipeline's parts.
            prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask: from
                :meth:`encode_prompt`, instead of texts.
            output_type: "pil", "np", "pt" (0..1) or "latent" (token ids).
            return_dict: False returns ``(images,)``.
            callback_on_step_end: ``f(pipe, step, timestep, tensors) -> dict`` after every target forward; ``timestep``
                is the number of tokens the slowest image has, ``tensors["latents"]`` the token ids so far. Set
                ``pipe._interrupt = True`` to stop. Returned latents replace the tokens that become pixels.
            callback_on_step_end_tensor_inputs: of ``["latents"]``.
            record_maps: also record entropy, acceptance and pass maps in the traces.

        Returns:
            :class:`CSDPipelineOutput`.

        Raises:
            ValueError: an argument outside its range, before the model runs.
        """
        self.check_inputs(num_images_per_prompt, height, width, output_type, callback_on_step_end_tensor_inputs)
        adapter, parts = adapter_for(self.target), self._parts(preset)
        given = {"guidance_scale": guidance_scale, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        warp = self._warp(adapter, given, preset)
        device = self._execution_device
        ids = self.encode_prompt(
            prompt,
            num_images_per_prompt,
            device,
            negative_prompt,
            prompt_ids,
            prompt_attention_mask,
            negative_prompt_ids,
            negative_prompt_attention_mask,
        )
        if warp.guided and ids[2] is None:
            raise ValueError("guidance needs negative_prompt_ids or a tokenizer; give them, or guidance_scale=1")
        seeds = image_seeds(len(ids[0]), seed, generator)
        texts = [prompt_texts.per_image(text, len(seeds)) for text in (prompt, negative_prompt)]
        recipes = make_recipes(self, *texts, seeds, warp, parts)

        self._interrupt, self._num_timesteps, self._guidance_scale = False, 0, warp.guidance_scale
        self._onload()
        session = adapter.open(PromptBatch(*(ids if warp.guided else ids[:2])), parts["drafter"].window)
        with self.progress_bar(total=len(seeds) * adapter.grid.tokens) as bar:
            monitor = _Monitor(self, bar, warp, callback_on_step_end, callback_on_step_end_tensor_inputs)
            result = decode(session, adapter, seeds=seeds, warp=warp, maps=record_maps, on_pass=monitor, device=device, **parts)
        tokens = result.tokens if monitor.latents is None else monitor.latents
        images = tokens
        if output_type != "latent":
            images = self.image_processor.postprocess(decode_pixels(adapter, tokens), output_type=output_type)
        self.maybe_free_model_hooks()
        if not return_dict:
            return (images,)
        return CSDPipelineOutput(images=images, traces=result.traces, recipes=recipes, complete=result.complete)

    def _parts(self, preset: str | None) -> dict:
        parts = build_parts(read_preset(preset)) if preset else {name: getattr(self, name) for name in PARTS}
        return parts | {
            "drafter": parts["drafter"] or JacobiDrafter(window=1),
            "relaxation": parts["relaxation"] or Exact(),
        }

    def _warp(self, adapter, given: dict, preset: str | None) -> Warp:
        """Knobs of the call, else of its preset, else of the pipeline, else of the model family."""
        named = read_preset(preset)["call"] if preset else {}
        family = {"guidance_scale": adapter.default_guidance_scale, "temperature": adapter.default_temperature}
        knobs = {}
        for name in CALL_KNOBS:
            choices = (given[name], named.get(name), self.config[f"default_{name}"], family.get(name))
            knobs |= {name: value for value in choices[::-1] if value is not None}
        return Warp(**knobs)

    def _onload(self) -> None:
        """Offloading hooks sit on the target's own forward, which the loop never calls: fire them by hand."""
        hook = getattr(self.target, "_hf_hook", None)
        if hook is not None and hasattr(hook, "pre_forward"):
            hook.pre_forward(self.target)


class _Monitor:
    """Progress bar, user callback and interruption, once per pass."""

    def __init__(self, pipeline, bar, warp: Warp, callback, tensor_inputs):
        self.pipeline, self.bar, self.warp, self.callback, self.tensor_inputs = pipeline, bar, warp, callback, tensor_inputs
        self.latents = None

    def __call__(self, progress: Progress) -> bool:
        pipeline = self.pipeline
        self.bar.set_postfix({"tokens/step": f"{max(progress.counts) / max(progress.passes - 1, 1):.2f}"}, refresh=False)
        self.bar.update(sum(progress.counts) - self.bar.n)
        pipeline._num_timesteps = progress.passes
        if self.callback is not None:
            tensors = {}
            for name in self.tensor_inputs:
                tensors[name] = {"latents": progress.tokens}[name]
            returned = self.callback(pipeline, progress.passes - 1, min(progress.counts), tensors) or {}
            if returned.get("latents") is not None and returned["latents"] is not progress.tokens:
                self.latents = returned["latents"]
        self.warp.guidance_scale = pipeline._guidance_scale
        return not pipeline._interrupt
