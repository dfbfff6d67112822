"""Every relaxing rule at the same drift per token: how many forwards does an image take?

    python docs/benchmarks/rules_at_equal_drift.py [images per prompt] > rules.md

Each rule runs at several strengths on the same prompts and seeds; forwards at a given drift lie on the line between the
two strengths around it. A rule that never spends that much has no entry there.
"""

import json
import sys
import tempfile
from importlib import resources
from pathlib import Path

import torch

from csd_pipeline import CSDAutoregressivePipeline, Exact, JacobiDrafter
from csd_pipeline.relaxation import RELAXATIONS
from csd_pipeline.relaxation.phrase_library import PhraseLibrary
from csd_pipeline.targets import adapter_for

LEVELS = (0.02, 0.05, 0.1, 0.2)
STRENGTHS = {
    "entropy": [{"lam": lam} for lam in (0.02, 0.05, 0.1, 0.3, 1.0, 10.0)],
    "amplify": [{"factor": factor} for factor in (1.1, 1.3, 2.0, 4.0, 16.0, 1000.0)],
    "addition": [{"bonus": bonus} for bonus in (0.01, 0.03, 0.1, 0.2, 0.4, 1.0)],
    "annealed": [{"delta": delta} for delta in (0.3, 1.0, 2.0, 4.0, 8.0, 16.0)],
    "neighbour": [{"k": 100, "delta": delta, "relative": False} for delta in (0.01, 0.03, 0.1, 0.3, 1.0)],
    "grouped": [{"size": size, "gap": 1.0} for size in (2, 5, 10, 25, 50, 100)],
    "ensemble": [{"weight": weight} for weight in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)],
    "semantic": [{"longest": longest} for longest in (2, 3, 4, 6, 0)],
    "phrase": [{"max_len": longest} for longest in (2, 3, 4)],
}


def main(images: int) -> None:
    texts = json.loads((resources.files("csd_pipeline.evaluation") / "bench_prompts.json").read_text("utf-8"))[:16]
    pipe = CSDAutoregressivePipeline.from_pretrained("embedded")
    pipe.set_progress_bar_config(disable=True)
    seeds = list(range(2000, 2000 + images * len(texts)))

    def run(relaxation) -> tuple[float, float, torch.Tensor]:
        """Drift per token, forwards per image, tokens."""
        drafter = JacobiDrafter(window=16, redraw="coupled")
        pipe.register_modules(drafter=drafter, relaxation=relaxation, alignment_filter=None)
        result = pipe(texts, num_images_per_prompt=images, seed=seeds, output_type="latent")
        count = len(result.traces)
        drift = sum(trace.drift_per_token for trace in result.traces) / count
        return drift, sum(trace.nfe for trace in result.traces) / count, result.images

    _, forwards, tokens = run(Exact())
    adapter, library = adapter_for(pipe.target), Path(tempfile.mkdtemp()) / "phrases.safetensors"
    grids = adapter.grid.picture(tokens)
    PhraseLibrary.collect(grids, adapter.codebook, max_len=4, min_count=10).save(library)
    print(f"exact: {forwards:.2f} forwards\n")
    levels = " | ".join(f"drift {level}" for level in LEVELS)
    print(f"| rule | fresh drafts | {levels} | most it spends |\n|---|---|{'---|' * (len(LEVELS) + 1)}")
    for name, choices in STRENGTHS.items():
        for relax_fresh in (False, True):
            curve = [(0.0, forwards)]
            for knobs in choices:
                knobs = knobs | {"library": str(library)} if name == "phrase" else knobs
                curve.append(run(RELAXATIONS[name](relax_fresh=relax_fresh, **knobs))[:2])
            cells = " | ".join(at(sorted(curve), level) for level in LEVELS)
            most = max(drift for drift, _ in curve)
            print(f"| {name} | {'relaxed' if relax_fresh else 'exact'} | {cells} | {most:.3f} |", flush=True)


def at(curve: list[tuple[float, float]], level: float) -> str:
    """Forwards at a drift, between the two nearest points of the curve."""
    for (low, first), (high, second) in zip(curve, curve[1:], strict=False):
        if low <= level <= high and high > low:
            return f"{first + (second - first) * (level - low) / (high - low):.2f}"
    return "-"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
