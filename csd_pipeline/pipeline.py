"""The diffusers pipeline: target, tokenizer and the three parts of a method as swappable, savable components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from diffusers.callbacks import MultiPipelineCallbacks, PipelineCallback
from diffusers.image_processor import VaeImageProcessor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from . import prompts as prompt_texts
from .automatic_drafting import AutomaticDrafting, is_automatic
from .checkpoint import check_loaded
from .checks import require_choice, require_integer, require_switch
from .components import AlignmentFilter, Drafter, ModelMixin, Relaxation, complete_parts
from .decoding import CapturedPass, CompiledPass, RunPass, decode
from .loading import PipelineLoading
from .names import PARTS
from .pipeline_output import CSDPipelineOutput
from .pixels import decode_pixels
from .presets import build_parts, read_preset
from .recipe import make_recipes
from .sampling_defaults import warp_of
from .seeds import image_seeds
from .step_monitor import StepMonitor
from .targets import PromptBatch, adapter_for

OUTPUT_TYPES = ("pil", "np", "pt", "latent")


class CSDAutoregressivePipeline(PipelineLoading):
    """Autoregressive text-to-image with speculative decoding.

    Args:
        target: the model, e.g. ``transformers.JanusForConditionalGeneration``; None: only prompts can be encoded.
        tokenizer: its tokenizer; may be None when prompts are given as ids.
        drafter: who proposes tokens; None decodes one token per forward.
        relaxation: acceptance rule; None is exact.
        alignment_filter: where the rule may act; None everywhere.
        default_guidance_scale, default_temperature, default_top_k, default_top_p: used where a call gives none; None
            takes them from the checkpoint's generation config, else from the published setting of the model family.

    Raises:
        ValueError: no adapter for the target, or weights that are not all there.
    """

    model_cpu_offload_seq = "target"
    _optional_components = ["tokenizer", "drafter", "relaxation", "alignment_filter"]
    _callback_tensor_inputs = ["latents", "counts", "drift"]

    def __init__(
        self,
        target: PreTrainedModel | ModelMixin,
        tokenizer: PreTrainedTokenizerBase,
        drafter: Drafter,
        relaxation: Relaxation,
        alignment_filter: AlignmentFilter,
        default_guidance_scale: float | None = None,
        default_temperature: float | None = None,
        default_top_k: int | None = None,
        default_top_p: float | None = None,
    ):
        super().__init__()
        parts = {"drafter": drafter, "relaxation": relaxation, "alignment_filter": alignment_filter}
        self.register_modules(target=target, tokenizer=tokenizer, **parts)
        self.register_to_config(
            default_guidance_scale=default_guidance_scale,
            default_temperature=default_temperature,
            default_top_k=default_top_k,
            default_top_p=default_top_p,
        )
        self.image_processor = VaeImageProcessor(vae_scale_factor=1)
        self._guidance_scale, self._num_timesteps, self._interrupt = 1.0, 0, False
        self._automatic_drafting = AutomaticDrafting()
        self._written_pass = self._run_pass = RunPass()
        if target is not None:
            adapter_for(target)  # an unsupported model is refused here, not in the first call
            check_loaded(target)

    def __setattr__(self, name: str, value) -> None:
        """A component in the place of None is registered as any other; diffusers would leave it out when it saves."""
        super().__setattr__(name, value)
        if name in ("target", "tokenizer", *PARTS) and value is not None and self.config[name][0] is None:
            self.register_modules(**{name: value})

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
        height: int | None = None,
        width: int | None = None,
    ):
        """Left-padded ids and masks [P * num_images_per_prompt, S] (int64) of the prompts and of their guidance rows.

        Given ids are only checked and repeated. Needs no target. ``height`` and ``width`` (pixels) matter to families
        that name the size in the prompt.

        Raises:
            ValueError: no prompt, texts and ids at once, no tokenizer where one is needed, or ids that do not fit.
        """
        device = device or self._execution_device
        if prompt_ids is None and negative_prompt_ids is not None:
            raise ValueError("got negative_prompt_ids without prompt_ids; give both as ids, or both as texts")
        formatter = prompt_texts.prompt_format(self.target, self.size_of(height, width))
        if prompt_ids is None:
            texts = prompt_texts.check_prompts(prompt, negative_prompt)
            if self.tokenizer is None and formatter.needs_tokenizer:
                raise ValueError("this pipeline has no tokenizer; give prompt_ids, or load one")
            encoded = prompt_texts.encode(formatter, self.tokenizer, texts, negative_prompt)
            prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask = encoded
        elif prompt is not None or negative_prompt is not None:
            raise ValueError("got texts and prompt_ids; give prompt and negative_prompt, or the ids of both")
        if prompt_attention_mask is None:
            prompt_attention_mask = torch.ones_like(prompt_ids)
        if negative_prompt_ids is None and (self.tokenizer is not None or not formatter.needs_tokenizer):
            negative_prompt_ids, negative_prompt_attention_mask = formatter.guidance_rows(
                prompt_ids, prompt_attention_mask, self.tokenizer
            )
        if negative_prompt_attention_mask is None and negative_prompt_ids is not None:
            negative_prompt_attention_mask = prompt_attention_mask
        rows = (prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask)
        prompt_texts.check_ids(*rows, self.target)
        rows = [prompt_texts.repeat_rows(row, num_images_per_prompt, device) for row in rows]
        prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask = rows
        return prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask

    def size_of(self, height: int | None, width: int | None) -> tuple[int, int] | None:
        """(height, width) a call draws; a side that is left out is the model's usual one, None if both are."""
        if self.target is None or (height is None and width is None):
            return None
        usual = adapter_for(self.target).image_size
        return (usual[0] if height is None else height, usual[1] if width is None else width)

    def check_inputs(
        self,
        num_images_per_prompt,
        height,
        width,
        output_type,
        callback_on_step_end=None,
        callback_on_step_end_tensor_inputs=("latents",),
        batch_size=None,
        refill=False,
        record_maps=False,
    ) -> None:
        """Refuse bad arguments before the model runs. Raises ValueError naming the argument and what is allowed."""
        if self.target is None:
            raise ValueError("this pipeline has no target model, it can only encode prompts; load one to draw")
        require_integer("num_images_per_prompt", num_images_per_prompt, 1)
        require_switch("refill", refill)
        require_switch("record_maps", record_maps)
        if batch_size is not None:
            require_integer("batch_size", batch_size, 1)
        elif refill:
            raise ValueError("refill needs batch_size: how many images are drawn at once while others wait")
        require_choice("output_type", output_type, OUTPUT_TYPES)
        adapter_for(self.target, self.size_of(height, width))
        if callback_on_step_end is not None and not callable(callback_on_step_end):
            raise ValueError(f"callback_on_step_end must be a function, got {callback_on_step_end!r}")
        for name in callback_on_step_end_tensor_inputs or ():
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
        batch_size: int | None = None,
        refill: bool = False,
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
                is the number of tokens the slowest image has, ``tensors["latents"]`` the token ids [B, N] so far. Set
                ``pipe._interrupt = True`` to stop, ``pipe._guidance_scale`` to change guidance. ``latents`` returned
                after the last pass replace the tokens that become pixels.
            callback_on_step_end_tensor_inputs: of ``["latents", "counts", "drift"]``: token ids [B, N] int64, tokens
                every image has [B] int64 on the CPU, total variation every image has spent so far [B] float32.
            record_maps: also record entropy, acceptance and pass maps in the traces.
            batch_size: images drawn at once, at most; None draws all at once. Bounds the memory, changes no picture.
                Callbacks then see one batch after the other (``step`` counts on), and after an interruption the output
                holds the images of the batches that were begun.
            refill: with ``batch_size`` for many images: the next one begins as soon as one is finished, instead of with
                its batch. Callbacks then see all images of the call; guidance they change is that of all images being
                drawn and to be drawn.

        Returns:
            :class:`CSDPipelineOutput`.

        Raises:
            ValueError: an argument outside its range, before the model runs.
        """
        if isinstance(callback_on_step_end, (PipelineCallback, MultiPipelineCallbacks)):
            callback_on_step_end_tensor_inputs = callback_on_step_end.tensor_inputs
        callback = (callback_on_step_end, callback_on_step_end_tensor_inputs)
        self.check_inputs(num_images_per_prompt, height, width, output_type, *callback, batch_size, refill, record_maps)
        adapter, device = adapter_for(self.target, self.size_of(height, width)), self._execution_device
        self._run_pass.check_device(torch.device(device))
        if type(self._run_pass) is not RunPass:
            self._check_whole()
        own = {name: getattr(self, name) for name in PARTS}
        parts = complete_parts(**(own if preset is None else build_parts(read_preset(preset))))
        given = {"guidance_scale": guidance_scale, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        self._run_pass.check_drafter(parts["drafter"])
        warp = warp_of(self, adapter, given, preset)
        ids = (prompt_ids, prompt_attention_mask, negative_prompt_ids, negative_prompt_attention_mask)
        ids = self.encode_prompt(prompt, num_images_per_prompt, device, negative_prompt, *ids, height, width)
        if warp.guided and ids[2] is None:
            raise ValueError("guidance needs negative_prompt_ids or a tokenizer; give them, or guidance_scale=1")
        seeds = image_seeds(len(ids[0]), seed, generator)
        texts = [prompt_texts.per_image(text, len(seeds)) for text in (prompt, negative_prompt)]
        self._interrupt, self._num_timesteps = False, 0
        rows = ids if warp.guided else ids[:2]
        try:
            self._onload()
            automatic = is_automatic(parts["drafter"])
            if automatic:
                batch = PromptBatch(*(row[:batch_size] for row in rows))
                parts |= {"drafter": self._automatic_drafting.choose(adapter, batch, warp, parts, self._run_pass)}
                asked = replace(warp)
            recipes = make_recipes(self, *texts, seeds, warp, parts, adapter.image_size)
            with self.progress_bar(total=len(seeds) * adapter.grid.tokens) as bar:
                monitor = StepMonitor(self, bar, warp, *callback, adapter.vocabulary)
                results = self._decode_batches(
                    adapter,
                    rows,
                    seeds,
                    batch_size,
                    refill,
                    monitor,
                    warp=warp,
                    maps=record_maps,
                    device=device,
                    **parts,
                )
            images = tokens = torch.cat([result.tokens for result in results])
            if output_type != "latent":
                images = self.image_processor.postprocess(decode_pixels(adapter, tokens), output_type=output_type)
        finally:
            self.maybe_free_model_hooks()  # also when a callback raised: the memory goes back either way
        traces = [trace for result in results for trace in result.traces]
        if automatic and warp == asked:  # a callback may have changed it: then the pictures tell of neither
            self._automatic_drafting.learn(adapter, parts, warp, traces)
        if not return_dict:
            return (images,)
        complete = len(traces) == len(seeds) and all(result.complete for result in results)
        return CSDPipelineOutput(images, traces, recipes[: len(traces)], complete)

    def _decode_batches(self, adapter, rows, seeds, batch_size, refill, monitor, *, warp, drafter, **options) -> list:
        """Decode ``batch_size`` images at a time; the results of the batches that were begun."""
        scale, results, batch_size = warp.guidance_scale, [], batch_size or len(seeds)
        window = min(drafter.window, adapter.grid.tokens) + drafter.extra_tokens

        def session_of(first: int, count: int):
            return adapter.open(PromptBatch(*(row[first : first + count] for row in rows)), window)

        options |= {"warp": warp, "drafter": drafter, "on_pass": monitor, "run_pass": self._run_pass}
        if refill:
            options["waiting"] = session_of
        for start in range(0, len(seeds), len(seeds) if refill else batch_size):
            self._guidance_scale = warp.guidance_scale = scale  # a callback may have changed it for the batch before
            monitor.begin_batch()
            count = min(batch_size, len(seeds) - start)
            options["seeds"] = seeds if refill else seeds[start : start + count]
            results.append(decode(session_of(start, count), adapter, **options))
            if monitor.latents is not None:
                results[-1].tokens = monitor.latents[: len(results[-1].traces)]
            if self._interrupt:
                break
        return results

    def enable_compile(self, **options) -> None:
        """Compile the pass over the window with torch.compile: the same decisions, fewer and fused kernels.

        The first picture of every method, window and number of images waits for the compiler, on a CPU a C++ compiler
        and about a minute; prompts of other lengths do not. Finished images of a batch stay in it until all are
        finished, or others take their place (``refill``): a smaller batch would be compiled anew. Rounding differs from
        the uncompiled pass, so a token may flip where two are tied to the last digits.

        Args:
            options: of torch.compile, such as ``mode`` or ``backend``.

        Raises:
            ValueError: the model is offloaded or split over devices, which a compiled pass can not follow.
        """
        self._check_whole()
        self._written_pass = CompiledPass(**options)
        self._choose_pass(isinstance(self._run_pass, CapturedPass))

    def disable_compile(self) -> None:
        """Run passes as they are written again."""
        self._written_pass = RunPass()
        self._choose_pass(isinstance(self._run_pass, CapturedPass))

    def enable_cuda_graphs(self) -> None:
        """Capture the pass over the window in CUDA graphs: one launch instead of hundreds. Goes with compiling.

        Captures are kept, with the key/value cache of the last two methods and numbers of images they belong to; the
        second pass of every shape is captured. Finished images of a batch then stay in it until all are finished, or
        others take their place (``refill``).

        Raises:
            ValueError: the model is not on a CUDA device, or is offloaded or split over devices.
        """
        if self.device.type != "cuda":
            raise ValueError(
                f"CUDA graphs need the model on a CUDA device, it is on {self.device}; move it there first"
            )
        self._check_whole()
        self._choose_pass(captured=True)

    def disable_cuda_graphs(self) -> None:
        """Run passes as they are written, or compiled, again; frees what captures keep."""
        self._choose_pass(captured=False)

    def _choose_pass(self, captured: bool) -> None:
        self._run_pass = CapturedPass(self._written_pass) if captured else self._written_pass

    def _check_whole(self) -> None:
        devices = set((getattr(self.target, "hf_device_map", None) or {}).values())
        if len(devices) > 1 or any(hasattr(module, "_hf_hook") for module in self.target.modules()):
            raise ValueError(
                "a compiled or captured pass needs the whole model on one device, this one is offloaded or split; load "
                "it without device_map and offloading, or call disable_compile() and disable_cuda_graphs()"
            )

    def _onload(self) -> None:
        """Offloading hooks sit on the target's own forward, which the loop never calls: fire it by hand."""
        hook = getattr(self.target, "_hf_hook", None)
        if hook is not None and hasattr(hook, "pre_forward"):
            hook.pre_forward(self.target)
