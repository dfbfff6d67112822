"""Trains the autoregressive target in float32 on one or several CPU processes of one thread each.

The global batch does not depend on the number of processes, and every state is saved: a run can be stopped and
continued with another number of processes, or with another number of steps to start the learning-rate decay.
"""

import json
import multiprocessing
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from transformers import JanusForConditionalGeneration, PreTrainedTokenizerFast

from .architecture import janus_config, layer_matrices, target_parameters
from .batches import BatchMaker, TokenBatch
from .cpu_memory import keep_freed_memory
from .dataset import load_dataset
from .optimizers import Muon, learning_rate_scale, sum_over_processes
from .pixel_codes import PixelCodes

VALIDATION_STEP = 1_000_000_000


@dataclass(frozen=True)
class TargetJob:
    """`work_dir` holds `start/` (weights, tokenizer, codes to begin with); results go to `work_dir/target`."""

    work_dir: Path
    recipe: dict
    processes: int = 1

    @property
    def folder(self) -> Path:
        return self.work_dir / "target"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"


def train_target(job: TargetJob) -> Path:
    """Runs or continues the training; returns the path of the last checkpoint."""
    job.folder.mkdir(parents=True, exist_ok=True)
    rendezvous = job.folder / f"rendezvous-{os.getpid()}"
    if job.processes == 1:
        _worker(0, job, rendezvous)
    else:
        mp.spawn(_worker, (job, rendezvous), nprocs=job.processes)
        rendezvous.unlink(missing_ok=True)
    return job.checkpoint


def image_logits(model: JanusForConditionalGeneration, batch: TokenBatch) -> torch.Tensor:
    """Logits (rows, 256, codes) of every picture token given the prompt and the tokens before it."""
    inner = model.model
    text = inner.language_model.embed_tokens(batch.prompts)
    read = batch.pictures if batch.inputs is None else batch.inputs
    picture = inner.generation_aligner(inner.generation_embeddings(read[:, :-1]))
    mask = F.pad(batch.mask, (0, picture.shape[1]), value=1)
    hidden = inner.language_model(
        inputs_embeds=torch.cat([text, picture], 1),
        attention_mask=None if mask.all() else mask,
        position_ids=(mask.cumsum(1) - 1).clamp_min(0),
        use_cache=False,
    ).last_hidden_state
    return inner.generation_head(hidden[:, text.shape[1] - 1 :])


def negative_log_likelihood(model: JanusForConditionalGeneration, batch: TokenBatch) -> torch.Tensor:
    """Mean nats per picture token."""
    return F.cross_entropy(image_logits(model, batch).flatten(0, 1), batch.pictures.flatten())


def _worker(rank: int, job: TargetJob, rendezvous: Path) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    if job.processes > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = dist.FileStore(str(rendezvous), job.processes)  # not a file:// address, which a relative path breaks
        dist.init_process_group("gloo", store=store, rank=rank, world_size=job.processes)
    try:
        TargetTrainer(rank, job).run()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def orphaned() -> bool:
    """True in a process whose starter was killed: it must stop, or it would overwrite the next run's checkpoints."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


class TargetTrainer:
    """One process of the training."""

    def __init__(self, rank: int, job: TargetJob):
        self.rank, self.job, self.numbers = rank, job, job.recipe["target"]
        start = job.work_dir / "start"
        self.model = JanusForConditionalGeneration(janus_config(job.recipe["model"])).train()
        self.model.load_state_dict(torch.load(start / "model.pt", weights_only=True))
        self.parameters = target_parameters(self.model)
        self.optimizers = make_optimizers(self.parameters, self.numbers)
        self.batches = BatchMaker(
            load_dataset(job.work_dir, job.recipe["texture_count"], job.recipe["seed"]),
            PixelCodes.load(start / "codes.safetensors"),
            PreTrainedTokenizerFast.from_pretrained(start),
            job.recipe["seed"],
            self.numbers["caption_dropout"],
            self.numbers["noisy_share"],
            self.numbers["noise_rate"],
        )
        self.step = self._resume() if job.checkpoint.exists() else 0
        self.recent: list[float] = []

    def run(self) -> None:
        numbers, began, first = self.numbers, time.time(), self.step
        while self.step < numbers["steps"] and not orphaned():
            self.recent.append(self.train_step())
            if self.step % 50 == 0:
                speed = (self.step - first) * numbers["batch"] * 256 / (time.time() - began)
                self._log(nll=sum(self.recent) / len(self.recent), tokens_per_second=round(speed))
                self.recent.clear()
            last = self.step == numbers["steps"]
            if self.step % numbers["validate_every"] == 0 or last:
                self._log(held_out_nll=self.validate())
            if self.step % numbers["save_every"] == 0 or last:
                self.save()

    def train_step(self) -> float:
        """One update; returns the mean loss of the global batch."""
        numbers = self.numbers
        scale = learning_rate_scale(self.step, numbers["steps"], numbers["decay_steps"], numbers["warmup_steps"])
        rows = range(self.rank, numbers["batch"], self.job.processes)
        batch = self.batches.make(self.step, rows)
        loss = negative_log_likelihood(self.model, batch) * (len(rows) / numbers["batch"])
        for optimizer in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = group["full_lr"] * scale
        loss.backward()
        total = loss.detach().clone()
        sum_over_processes([total, *(p.grad for p in self.parameters.values())])
        nn.utils.clip_grad_norm_(self.parameters.values(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.step += 1
        return total.item()

    @torch.no_grad()
    def validate(self) -> float:
        """Mean nats per token on held-out pairs, always the same pictures."""
        count, size = self.numbers["validation_pictures"], 16
        starts = range(0, count, size)[self.rank :: self.job.processes]
        total = torch.zeros(())
        for start in starts:
            rows = range(start, min(start + size, count))
            batch = self.batches.make(VALIDATION_STEP, rows, held_out=True)
            total += negative_log_likelihood(self.model, batch) * (len(rows) / count)
        sum_over_processes([total])
        return total.item()

    def save(self) -> None:
        if self.rank:
            return
        state = {
            "step": self.step,
            "parameters": {name: p.detach() for name, p in self.parameters.items()},
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        partial = self.job.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.job.checkpoint)

    def _resume(self) -> int:
        state = torch.load(self.job.checkpoint, weights_only=True)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(state["parameters"][name])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            rate = optimizer.param_groups[0]["full_lr"]  # of the present recipe, not of the interrupted run
            optimizer.load_state_dict(saved)
            optimizer.param_groups[0]["full_lr"] = rate
        return state["step"]

    def _log(self, **values: float) -> None:
        if self.rank == 0:
            line = {"step": self.step, **{k: round(v, 4) for k, v in values.items()}, "time": time.strftime("%H:%M:%S")}
            with open(self.job.folder / "log.jsonl", "a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")


def make_optimizers(parameters: dict[str, nn.Parameter], numbers: dict) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for everything else; `full_lr` is the rate before scheduling."""
    matrices = layer_matrices(parameters)
    others = [p for name, p in parameters.items() if name not in matrices]
    muon = Muon(list(matrices.values()), lr=numbers["muon_lr"], weight_decay=numbers["weight_decay"])
    adamw = torch.optim.AdamW(others, lr=numbers["adamw_lr"], betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    for optimizer, rate in ((muon, numbers["muon_lr"]), (adamw, numbers["adamw_lr"])):
        for group in optimizer.param_groups:
            group["full_lr"] = rate
    return [muon, adamw]
