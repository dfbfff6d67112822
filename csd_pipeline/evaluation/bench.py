"""Arms side by side in one process: same prompts, same seeds, interleaved, so that ratios mean something."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field

import torch

from csd_pipeline.decoding import Warp, decode
from csd_pipeline.pixels import decode_pixels
from csd_pipeline.prompts import encode
from csd_pipeline.targets import PromptBatch, adapter_for

from .arms import Arm


@dataclass
class Run:
    """One image of one arm. Seconds exclude prompt encoding and the pixel decoder.

    Args:
        number: of the prompt, to find the run of plain decoding it is compared with.
        wall, cpu: seconds of the decoding loop, wall clock and process time.
        forward_cpu: process seconds inside the target's forwards after the prefill.
        tokens: [1, N] token ids.
    """

    arm: str
    number: int
    prompt: str
    seed: int
    nfe: int
    tokens_per_step: float
    accepted_per_step: float
    drift_per_token: float
    wall: float
    cpu: float
    forward_cpu: float
    tokens: torch.Tensor = field(repr=False, default=None)

    def to_dict(self) -> dict:
        return {name: none_if_nan(value) for name, value in asdict(self).items() if name != "tokens"}


class Bench:
    """Runs arms on one pipeline.

    Args:
        pipeline: target and tokenizer; its own parts are not used.
        warp: sampling settings of every arm.
    """

    def __init__(self, pipeline, warp: Warp):
        self.pipeline, self.warp = pipeline, warp
        self.adapter = adapter_for(pipeline.target)

    def run(self, arms: list[Arm], prompts: list[str], seed: int, transformers_arm: bool = False) -> list[Run]:
        """Every arm on every prompt, arms interleaved; one unmeasured image per arm first."""
        for arm in arms:
            self.decode(arm, prompts[0], seed)
        runs = []
        for number, prompt in enumerate(prompts):
            runs += [self.decode(arm, prompt, seed + number + arm.seed_offset, number) for arm in arms]
            if transformers_arm:
                runs.append(self.decode_with_transformers(prompt, seed + number, number))
        return runs

    def decode(self, arm: Arm, prompt: str, seed: int, number: int = 0) -> Run:
        session = self.adapter.open(self._prompt(prompt), arm.parts["drafter"].window)
        forward = _Stopwatch(session)
        with _Clock() as clock:
            result = decode(
                session,
                self.adapter,
                seeds=[seed],
                warp=self.warp,
                device=self.pipeline.device,
                **arm.parts,
            )
        trace = result.traces[0]
        return Run(
            arm.name,
            number,
            prompt,
            seed,
            trace.nfe,
            trace.tokens_per_step,
            trace.accepted_per_step,
            trace.drift_per_token,
            clock.wall,
            clock.cpu,
            forward.cpu,
            result.tokens,
        )

    @torch.no_grad()
    def decode_with_transformers(self, prompt: str, seed: int, number: int = 0) -> Run:
        """The model's own image generation loop in transformers (Janus), at the same settings."""
        batch, model = self._prompt(prompt), self.pipeline.target
        tokenizer, count = self.pipeline.tokenizer, self.adapter.grid.tokens
        boi = tokenizer.convert_tokens_to_ids(self.adapter.boi_token(tokenizer))
        model.generation_config.generation_kwargs = {"boi_token_id": boi}
        with torch.random.fork_rng(devices=[]), _Clock() as clock:
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
        nfe = count - 1  # its first forward is the prefill
        return Run(
            arm="transformers",
            number=number,
            prompt=prompt,
            seed=seed,
            nfe=nfe,
            tokens_per_step=1.0,
            accepted_per_step=0.0,
            drift_per_token=0.0,
            wall=clock.wall,
            cpu=clock.cpu,
            forward_cpu=float("nan"),
            tokens=tokens,
        )

    def transformers_can_draw(self) -> bool:
        """Its Janus loop knows no decoding without guidance, and no temperature 0."""
        return self.adapter.family == "janus" and self.warp.guided and self.warp.temperature > 0

    def pixels(self, runs: list[Run]) -> torch.Tensor:
        """[n, 3, H, W] in [-1, 1]."""
        with torch.no_grad():
            return decode_pixels(self.adapter, torch.cat([run.tokens for run in runs]))

    def _prompt(self, prompt: str) -> PromptBatch:
        ids = [row.to(self.pipeline.device) for row in encode(self.adapter, self.pipeline.tokenizer, [prompt], None)]
        return PromptBatch(*(ids if self.warp.guided else ids[:2]))


class _Clock:
    """Wall and process seconds of a block, the device synchronised at both ends."""

    def __enter__(self):
        self._started = self._now()
        return self

    def __exit__(self, *_):
        wall, cpu = self._now()
        self.wall, self.cpu = wall - self._started[0], cpu - self._started[1]

    @staticmethod
    def _now() -> tuple[float, float]:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter(), time.process_time()


class _Stopwatch:
    """Adds up the process time of a session's ``step``."""

    def __init__(self, session):
        self.cpu, self._step = 0.0, session.step
        session.step = self._timed

    def _timed(self, *args):
        with _Clock() as clock:
            logits = self._step(*args)
        self.cpu += clock.cpu
        return logits


def none_if_nan(value):
    """JSON has no NaN."""
    return None if value != value else value
