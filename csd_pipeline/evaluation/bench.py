"""Arms side by side in one process: same prompts, same seeds, interleaved, so that ratios mean something."""

from __future__ import annotations

from collections.abc import Callable

import torch
from PIL.Image import Image

from csd_pipeline.decoding import CompiledPass, RunPass, Trace, Warp, WatchedPass, decode
from csd_pipeline.pixels import decode_pixels
from csd_pipeline.prompts import encode
from csd_pipeline.targets import PromptBatch, adapter_for

from .arms import TRANSFORMERS, Arm
from .clocks import Clock, CompiledForwards, ForwardWatch
from .likelihood import nats_per_token
from .naive_loop import CopyingSession, decode_naive
from .peak_memory import PeakMemory
from .runs import Run


class Bench:
    """Runs arms on one pipeline.

    Args:
        pipeline: target and tokenizer; its own parts are not used.
        warp: sampling settings of every arm.
        judge: scores pictures against prompts (:class:`~csd_pipeline.evaluation.prompt_accuracy.PromptAccuracy`), or
            None.

    Attributes:
        peak_memory: {name of the arm: bytes needed beyond what was held before, or None}, filled by :meth:`run`.
    """

    def __init__(self, pipeline, warp: Warp, judge=None):
        self.pipeline, self.warp, self.judge = pipeline, warp, judge
        self.adapter = adapter_for(pipeline.target)
        self.peak_memory: dict[str, int | None] = {}
        self._compiled = CompiledPass()
        self._forwards = CompiledForwards(pipeline.device, self._compiled.options)

    @property
    def transformers_can_draw(self) -> bool:
        """Its Janus loop knows no decoding without guidance, and no temperature 0."""
        return self.adapter.family == "janus" and self.warp.guided and self.warp.temperature > 0

    @property
    def naive_can_draw(self) -> bool:
        return self.adapter.family == "janus"

    def run(
        self, arms: list[Arm], prompts: list[str], seed: int, on_prompt: Callable[[int], None] = lambda done: None
    ) -> list[Run]:
        """Every arm on every prompt, arms interleaved; transformers' own loop is the last arm where it can draw.

        One image per arm comes first, unmeasured but for its peak memory.

        Args:
            seed: prompt i uses ``seed + i``.
            on_prompt: called with the number of finished prompts; the warm-up counts as prompt 0.

        Raises:
            ValueError: an arm with the naive loop on a target that loop does not know.
        """
        if not self.naive_can_draw and any(arm.loop == "naive" for arm in arms):
            raise ValueError(f"loop=naive knows Janus targets only, this is {self.adapter.family}; leave such arms out")
        draws = {arm.name: (lambda *image, arm=arm: self.decode(arm, *image)) for arm in arms}
        if self.transformers_can_draw:
            draws[TRANSFORMERS] = self.decode_with_transformers
        self._warm_up(draws, prompts[0], seed)
        on_prompt(0)
        runs = []
        for number, prompt in enumerate(prompts):
            fresh = [draw(prompt, seed + number, number) for draw in draws.values()]
            for run in fresh:
                self._score(run)
            runs += fresh
            on_prompt(number + 1)
        return runs

    def _warm_up(self, draws: dict[str, Callable], prompt: str, seed: int) -> None:
        next(iter(draws.values()))(prompt, seed)  # what only the first image of a process needs is no arm's memory
        for name, draw in draws.items():
            with PeakMemory(self.pipeline.device) as memory:
                draw(prompt, seed)
            self.peak_memory[name] = memory.bytes

    def decode(self, arm: Arm, prompt: str, seed: int, number: int = 0) -> Run:
        """One image in the loop of the arm."""
        ids, device = self._prompt(prompt), self.pipeline.device
        loop = {"csd": self._decode, "compiled": self._decode_compiled, "naive": self._decode_naive}[arm.loop]
        seed += arm.seed_offset
        return loop(arm, ids, seed, device, {"arm": arm.name, "number": number, "prompt": prompt, "seed": seed})

    def maps(self, arm: Arm, prompt: str, seed: int) -> tuple[Image, Trace]:
        """The picture of an arm and its trace with maps, from an unmeasured run."""
        session = self.adapter.open(self._prompt(prompt), self._window(arm))
        result = decode(
            session, self.adapter, seeds=[seed], warp=self.warp, device=self.pipeline.device, maps=True, **arm.parts
        )
        with torch.no_grad():
            pixels = decode_pixels(self.adapter, result.tokens)
        return self.pipeline.image_processor.postprocess(pixels, output_type="pil")[0], result.traces[0]

    def _decode(self, arm: Arm, prompt: PromptBatch, seed: int, device, labels: dict) -> Run:
        clock = Clock(device)
        with clock:
            session = self.adapter.open(prompt, self._window(arm))
            watch = ForwardWatch(session, device)
            result = decode(session, self.adapter, seeds=[seed], warp=self.warp, device=device, **arm.parts)
        trace = result.traces[0]
        return _run(labels, clock, watch, result.tokens, trace.accepted, trace.drift_per_token)

    def _decode_compiled(self, arm: Arm, prompt: PromptBatch, seed: int, device, labels: dict) -> Run:
        """Inside a compiled pass there is no forward to be timed, so the image is drawn once more with a compiled
        forward beside every pass. Their share of that drawing is taken for their share of this one: what else the
        machine does changes from one drawing to the next.
        """
        method = {"seeds": [seed], "warp": self.warp, "device": device, **arm.parts}
        beside, forwards, aside = self._forwards.watch(self._compiled)
        with Clock(device) as both:
            decode(self.adapter.open(prompt, self._window(arm)), self.adapter, run_pass=beside, **method)
        clock, counted = Clock(device), _Counted(self._compiled)
        with clock:
            session = self.adapter.open(prompt, self._window(arm))
            watch = ForwardWatch(session, device, prefill_only=True)
            result = decode(session, self.adapter, run_pass=counted, **method)
        trace = result.traces[0]
        wall = clock.wall * forwards.wall / (both.wall - aside.wall)
        cpu = clock.cpu * forwards.cpu / (both.cpu - aside.cpu)
        times = (clock.wall, clock.cpu, watch.prefill_wall, wall, cpu)
        counts = (len(counted.drafted), trace.accepted, counted.drafted)
        return Run(*labels.values(), *counts, trace.drift_per_token, *times, result.tokens)

    def _decode_naive(self, arm: Arm, prompt: PromptBatch, seed: int, device, labels: dict) -> Run:
        clock = Clock(device)
        with clock:
            session = CopyingSession(self.adapter, prompt)
            watch = ForwardWatch(session, device)
            result = decode_naive(session, self.adapter, seed=seed, warp=self.warp, device=device, **arm.parts)
        clock.wall, clock.cpu = clock.wall - result.bookkeeping.wall, clock.cpu - result.bookkeeping.cpu
        drift = result.drift / result.tokens.shape[1]
        return _run(labels, clock, watch, result.tokens, result.accepted, drift)

    @torch.no_grad()
    def decode_with_transformers(self, prompt: str, seed: int, number: int = 0) -> Run:
        """The model's own image generation loop in transformers (Janus), at the same settings."""
        batch, model, tokenizer = self._prompt(prompt), self.pipeline.target, self.pipeline.tokenizer
        boi = tokenizer.convert_tokens_to_ids(self.adapter.boi_token(tokenizer))
        model.generation_config.generation_kwargs = {"boi_token_id": boi}
        clock = Clock(self.pipeline.device)
        devices = [self.pipeline.device] if self.pipeline.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), clock:
            torch.manual_seed(seed)
            tokens = model.generate(
                batch.ids,
                attention_mask=batch.mask,
                generation_mode="image",
                do_sample=True,
                guidance_scale=self.warp.guidance_scale,
                temperature=self.warp.temperature,
                top_k=self.warp.top_k,
                top_p=self.warp.top_p,
                bos_token_id=tokenizer.bos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        nfe = tokens.shape[1] - 1  # its first forward is the prefill
        times = (clock.wall, clock.cpu, None, None, None)
        return Run(TRANSFORMERS, number, prompt, seed, nfe, [0] * nfe, [], 0.0, *times, tokens)

    def _score(self, run: Run) -> None:
        """Quality of a picture, outside every clock."""
        run.nats_per_token = nats_per_token(self.adapter, self._prompt(run.prompt), run.tokens, self.warp)
        if self.judge is not None:
            with torch.no_grad():
                pixels = decode_pixels(self.adapter, run.tokens).cpu()
            score = self.judge.score(pixels, [run.prompt])
            run.subject, run.background = score.subject_right.item(), score.background_right.item()

    def _window(self, arm: Arm) -> int:
        drafter = arm.parts["drafter"]
        return min(drafter.window, self.adapter.grid.tokens) + drafter.extra_tokens

    def _prompt(self, prompt: str) -> PromptBatch:
        ids = [row.to(self.pipeline.device) for row in encode(self.adapter, self.pipeline.tokenizer, [prompt], None)]
        return PromptBatch(*(ids if self.warp.guided else ids[:2]))


class _Counted(WatchedPass):
    """Notes the drafts of every pass."""

    def __init__(self, run_pass: RunPass):
        super().__init__(run_pass)
        self.drafted = []

    def __call__(self, run, length: int):
        self.drafted.append(length)
        return super().__call__(run, length)


def _run(labels: dict, clock: Clock, watch: ForwardWatch, tokens, accepted: list[int], drift: float) -> Run:
    return Run(
        **labels,
        nfe=watch.nfe,
        accepted=accepted,
        drafted=watch.drafted,
        drift_per_token=drift,
        wall=clock.wall,
        cpu=clock.cpu,
        prefill_wall=watch.prefill_wall,
        forward_wall=watch.wall,
        forward_cpu=watch.cpu,
        tokens=tokens,
    )
