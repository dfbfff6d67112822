"""Runs a job: loads the model once, draws batch by batch, saves every picture as soon as it is done."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click
import torch
from PIL.Image import Resampling

from csd_pipeline.automatic_drafting import is_automatic
from csd_pipeline.components import complete_parts
from csd_pipeline.decoding import Warp
from csd_pipeline.decoding.verification import is_exact
from csd_pipeline.names import EMBEDDED, PARTS
from csd_pipeline.picture_file import picture_bytes
from csd_pipeline.presets import CALL_KNOBS, build_parts, read_preset
from csd_pipeline.recipe import describe, make_recipes, rebuild_parts
from csd_pipeline.sampling_defaults import warp_of
from csd_pipeline.targets import adapter_for

from .collector import collector_paused
from .devices import choose_device, choose_dtype, choose_threads
from .errors import note, quiet_libraries, status
from .files import write_whole
from .interruption import StopRequest
from .jobs import Image, Job
from .manifest import Entry, write_manifest
from .parts import choose_parts, knob_text
from .processes import Processes
from .resume import saved_picture

_BATCHES_TOGETHER = 4  # drawn in one go where finished pictures make room for others


def run_job(
    job: Job,
    machine: dict,
    *,
    batch: int,
    scale: int,
    maps: bool,
    verbose: bool,
    refill: bool = False,
    compiled: bool = False,
    cuda_graphs: bool = False,
) -> bool:
    """Draw and save every image of this process; returns whether all are there (they are not after Ctrl-C).

    Ctrl-C stops after the forward that runs, and the pictures of the batch that are finished are saved; a second one
    stops at once. Several processes share the images, and the first one writes traces and manifest of all.

    Args:
        machine: the wishes ``device``, ``dtype``, ``threads``.
        batch: images drawn at once.
        refill: begin the next image as soon as one is finished.
        scale: enlargement of the saved picture.
        maps: also save a sheet of maps per picture.
        compiled: compile the passes.
        cuda_graphs: capture them.

    Raises:
        ValueError: whatever is wrong with the job, or CUDA graphs on another device.
    """
    quiet_libraries()
    parts, numbers = _method_before_loading(job)
    device, reason = choose_device(machine["device"])
    if cuda_graphs and not device.startswith("cuda"):
        raise ValueError(f"--cuda-graphs needs a CUDA device, this job runs on {device}; leave it out")
    processes = Processes(device)
    total, images = len(job.images), processes.share(job.images)
    results = Results(job, scale, processes)
    try:
        with status(f"loading {job.model}"), collector_paused():
            pipeline, reasons = _load(job, machine, processes.device)
        adapter_for(pipeline.target, job.size)  # a size it can not draw is refused before anything is said
        if verbose and processes.main:
            note("\n".join([f"device: {processes.device} ({reason})", *reasons]))
        if job.recipe is None and job.parts.preset is None:
            parts = choose_parts(job.parts, {name: getattr(pipeline, name) for name in PARTS})
        parts = complete_parts(**parts)
        if (job.resume or processes.several) and is_automatic(parts["drafter"]):
            raise ValueError(
                "--resume and several processes need one method for all pictures; choose --window and --redraw instead "
                "of auto"
            )
        pipeline.register_modules(**parts)
        if compiled:
            pipeline.enable_compile()
        if cuda_graphs:
            pipeline.enable_cuda_graphs()
        if verbose and processes.main:
            for kind, part in parts.items():
                note(f"{kind.replace('_', ' ')}: {knob_text(describe(part))}")
        if job.seed_is_random and processes.main:
            note(f"seed {images[0].seed}")
        waiting = _not_yet_saved(pipeline, images, job, numbers, results) if job.resume else images
        with StopRequest() as stop:
            together = batch * _BATCHES_TOGETHER if refill else batch
            for start in range(0, len(waiting), together):
                drawn = waiting[start : start + together]
                _show_progress(pipeline, start, len(drawn), len(waiting), processes.main)
                results.save(drawn, *_draw(pipeline, drawn, job, numbers, maps, stop, batch))
                if stop.asked:
                    break
        results.finish(total)
    except KeyboardInterrupt:
        pass  # what is left undone is said below
    if len(results.pictures) < len(images):
        note(f"\ninterrupted: {len(results.pictures)} of {len(images)} pictures saved")
    processes.leave()
    return len(results.pictures) == len(images)


def _method_before_loading(job: Job) -> tuple[dict, dict]:
    """Parts and sampling numbers; raises ValueError for whatever is wrong with them before a model is loaded."""
    if job.recipe is not None:
        parts, numbers = rebuild_parts(job.recipe), job.sampling.numbers()
    else:
        preset = read_preset(job.parts.preset or "exact")
        parts = choose_parts(job.parts, build_parts(preset))
        numbers = (preset["call"] if job.parts.preset else {}) | job.sampling.numbers()
    Warp(**numbers)
    return parts, numbers


def _load(job: Job, machine: dict, device: str) -> tuple:
    """The pipeline, and lines saying how it computes, and why."""
    from csd_pipeline import CSDAutoregressivePipeline

    wanted, from_recipe = machine["dtype"], job.recipe is not None and machine["dtype"] == "auto"
    if wanted == "auto" and job.model == EMBEDDED:
        wanted = "float32"  # small enough for any device, and exact then means the very same picture
    threads, threads_reason = choose_threads(machine["threads"])
    torch.set_num_threads(threads)  # first: a number format may be chosen by measurement
    dtype, dtype_reason = choose_dtype(job.recipe.get("dtype", "auto") if from_recipe else wanted, device)
    pipeline = CSDAutoregressivePipeline.from_pretrained(job.model, dtype=getattr(torch, dtype)).to(device)
    return pipeline, [
        f"model: {job.model}",
        f"dtype: {dtype} ({'as in the recipe' if from_recipe else dtype_reason})",
        f"threads: {threads} ({threads_reason})",
    ]


def _not_yet_saved(pipeline, images: list[Image], job: Job, numbers: dict, results: Results) -> list[Image]:
    """Those of ``images`` no earlier run has saved; the others count as done."""
    adapter, negative = adapter_for(pipeline.target, job.size), job.sampling.negative_prompt
    warp = warp_of(pipeline, adapter, dict.fromkeys(CALL_KNOBS) | numbers, None)
    parts = {name: getattr(pipeline, name) for name in PARTS}
    texts = [image.prompt for image in images], None if negative is None else [negative] * len(images)
    recipes = make_recipes(pipeline, *texts, [image.seed for image in images], warp, parts, adapter.image_size)
    waiting = []
    for image, recipe in zip(images, recipes, strict=True):
        found = saved_picture(job.destination, image, recipe, results.scale)
        if found is None:
            waiting.append(image)
        else:
            results.count(image, *found, recipe)
    if len(waiting) < len(images):
        note(f"{len(images) - len(waiting)} of {len(images)} pictures are there already")
    return waiting


def _show_progress(pipeline, start: int, count: int, total: int, main: bool) -> None:
    name = f"picture {start + 1}" if count == 1 else f"pictures {start + 1}-{start + count}"
    pipeline.set_progress_bar_config(
        disable=not (main and sys.stderr.isatty()),
        leave=False,
        dynamic_ncols=True,
        desc=name if total == 1 else f"{name} of {total}",
        bar_format="{desc} {percentage:3.0f}% {bar} {n_fmt}/{total_fmt} tokens, {elapsed}<{remaining}{postfix}",
    )


def _draw(pipeline, images: list[Image], job: Job, numbers: dict, maps: bool, stop: StopRequest, batch: int) -> tuple:
    """Output of the pipeline, a digest of each image's tokens (None: interrupted before it was finished), and whether
    the method is exact by construction. Both are shorter than ``images`` if not all were begun.
    """
    tokens = None

    def keep_tokens(pipe, step, timestep, tensors):
        nonlocal tokens
        tokens = tensors["latents"]
        pipe._interrupt = stop.asked
        return {}

    output = pipeline(
        [image.prompt for image in images],
        negative_prompt=job.sampling.negative_prompt,
        height=job.size and job.size[0],
        width=job.size and job.size[1],
        seed=[image.seed for image in images],
        callback_on_step_end=keep_tokens,
        callback_on_step_end_tensor_inputs=["latents"],
        record_maps=maps,
        batch_size=batch,
        refill=len(images) > batch,
        **numbers,
    )
    finished = [trace.tokens == tokens.shape[1] for trace in output.traces]
    digests = [tokens_digest(row) if done else None for row, done in zip(tokens, finished, strict=False)]
    return output, digests, is_exact(pipeline.relaxation, pipeline.alignment_filter, pipeline.drafter)


def tokens_digest(tokens: torch.Tensor) -> str:
    """SHA-256 of token ids [N] as little-endian 32-bit integers: says whether two pictures have the same tokens."""
    return hashlib.sha256(tokens.cpu().numpy().astype("<i4").tobytes()).hexdigest()


@dataclass
class Results:
    """Saves finished pictures and says so, one line each."""

    job: Job
    scale: int
    processes: Processes
    pictures: list[Entry] = field(default_factory=list)
    traces: list[tuple[int, dict]] = field(default_factory=list)  # with the number of the picture
    model: str = ""
    _traces_written: bool = False

    def save(self, images: list[Image], output, digests: list[str | None], exact: bool) -> None:
        """Write the finished pictures of one batch, their sheets, and the traces of all so far."""
        try:
            self._save_pictures(images, output, digests, exact)
        finally:  # also when one can't be written: those before it are there
            if self.processes.alone:
                self._save_traces(self.traces)

    def count(self, image: Image, path: Path, digest: str, recipe: dict) -> None:
        """A picture is there."""
        self.model = recipe["model"]
        self.pictures.append(Entry(image.index, image.prompt, image.seed, path.name, digest))

    def finish(self, total: int) -> None:
        """Write what is about all pictures of the job, ``total`` of them, whichever process drew them."""
        if not self.processes.alone:
            traces = self.processes.gather(self.traces)
            if self.processes.main:
                self._save_traces(sorted(traces, key=lambda entry: entry[0]))
        if self.job.has_manifest:
            entries = self.processes.gather(self.pictures)
            if self.processes.main:
                overwrite = self.job.destination.overwrite or self.job.resume
                write_manifest(self.job.destination.folder, self.model, entries, total, overwrite)

    def _save_pictures(self, images: list[Image], output, digests: list[str | None], exact: bool) -> None:
        for i, (image, digest) in enumerate(zip(images, digests, strict=False)):  # an interruption leaves some out
            if digest is None:
                continue
            picture, trace = output.images[i], output.traces[i]
            recipe = output.recipes[i] | {"tokens_sha256": digest}
            enlarged = picture
            if self.scale > 1:
                size = (picture.width * self.scale, picture.height * self.scale)
                enlarged = picture.resize(size, Resampling.LANCZOS)
            content = picture_bytes(enlarged, recipe)
            path = self.job.destination.write_picture(content, image.prompt, image.seed)
            self.count(image, path, digest, recipe)
            entry = {"prompt": image.prompt, **trace.to_dict(), "exact": exact, "file": str(path)}
            if trace.maps.get("entropy") is not None:
                entry["maps"] = str(self._save_sheet(picture, trace, path.stem))
            self.traces.append((image.index, entry))
            click.echo(report_line(entry))
            self._compare(digest)

    def _save_traces(self, traces: list[tuple[int, dict]]) -> None:
        if self.job.json_file is not None and traces:
            content = json.dumps([trace for _, trace in traces], indent=2).encode() + b"\n"
            overwrite = self.job.destination.overwrite or self._traces_written
            self.job.json_file = write_whole(self.job.json_file, content, overwrite)
            self._traces_written = True

    def _save_sheet(self, picture, trace, stem: str):
        import io

        from csd_pipeline.evaluation.maps import sheet

        buffer = io.BytesIO()
        sheet(picture, trace).save(buffer, "PNG")
        return self.job.destination.write(buffer.getvalue(), f"{stem}-maps.png")

    def _compare(self, digest: str) -> None:
        """After ``--from``: are they really the same tokens?"""
        before = (self.job.recipe or {}).get("tokens_sha256")
        if before == digest:
            note("the same tokens as in the given picture")
        elif before is not None:
            versions = ", ".join(f"{k} {v}" for k, v in self.job.recipe.get("versions", {}).items())
            note(f"warning: other tokens than in the given picture, which was drawn with {versions}")


def report_line(entry: dict) -> str:
    """One line about one picture, from its trace."""
    line = (
        f"{entry['file']}  {entry['seconds']:.1f} s  {entry['tokens_per_step']:.2f} tokens/step  "
        f"{entry['nfe']} forwards for {entry['tokens']} tokens  drift {entry['drift_per_token']:.4f}/token"
    )
    return f"{line}  exact" if entry["exact"] else line
