"""Forwards against drift: one budget per image against the allocations of CSD and Cool-SD.

    python docs/benchmarks/image_budget_frontier.py [images per prompt] > frontier.md

Same prompts and seeds for every row; "saved" is paired with the exact run of the same image.
"""

import json
import sys
from importlib import resources

import torch

from csd_pipeline import CSDAutoregressivePipeline, Exact, ImageBudget, JacobiDrafter, TVFilter
from csd_pipeline.relaxation import AmplifyRelaxation, AnnealedRelaxation, EntropyRelaxation

ROWS = [
    ("exact", Exact(), None),
    *((f"CSD, delta {delta}", EntropyRelaxation(0.5), TVFilter(delta)) for delta in (0.2, 0.35, 0.65, 0.8)),
    ("Cool-SD, delta 2", AnnealedRelaxation(delta=2.0, min_omega=0.0), None),
    *((f"Cool-SD, delta {delta}, never below plain", AnnealedRelaxation(delta=delta), None) for delta in (1.1, 2.0)),
    *((f"image budget {budget}", AmplifyRelaxation(8.0), ImageBudget(budget)) for budget in (1, 2, 4, 8)),
]


def main(images: int) -> None:
    texts = json.loads((resources.files("csd_pipeline.evaluation") / "bench_prompts.json").read_text("utf-8"))[:16]
    pipe = CSDAutoregressivePipeline.from_pretrained("embedded")
    pipe.set_progress_bar_config(disable=True)
    print("| method | forwards | saved (standard error) | drift per image | worst image |\n|---|---|---|---|---|")
    exact = None
    for name, relaxation, alignment_filter in ROWS:
        pipe.register_modules(
            drafter=JacobiDrafter(window=16, redraw="coupled"), relaxation=relaxation, alignment_filter=alignment_filter
        )
        seeds = list(range(1000, 1000 + images * len(texts)))
        traces = pipe(texts, num_images_per_prompt=images, seed=seeds, output_type="latent").traces
        forwards = torch.tensor([float(trace.nfe) for trace in traces])
        drift = torch.tensor([trace.drift for trace in traces])
        exact = forwards if exact is None else exact
        saved = exact - forwards
        error = saved.std() / len(saved) ** 0.5
        gain = f"{saved.mean():.2f} ({error:.2f})"
        print(f"| {name} | {forwards.mean():.2f} | {gain} | {drift.mean():.2f} | {drift.max():.2f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
