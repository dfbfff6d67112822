import math

import pytest
import torch
from helpers import (
    SEED_BASES,
    draws_from,
    emitted,
    law_p_value,
    random_laws,
    residual,
    run_toy,
    seeds_from,
    tv,
    window_of,
)

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.decoding import Warp
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import NeighbourRelaxation
from csd_pipeline.relaxation.neighbour_table import NeighbourTable
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget

LINE_P, LINE_Q = (0.10, 0.25, 0.40, 0.25), (0.05, 0.55, 0.20, 0.20)
P, Q = random_laws(200, 24, seed=1), random_laws(200, 24, seed=2)
CODES = torch.randn(24, 3, generator=torch.Generator().manual_seed(7))


class Codes:
    """A target of which only the codebook matters."""

    family = "codes"

    def __init__(self, codebook):
        self.codebook = torch.as_tensor(codebook, dtype=torch.float32)


def rule_for(codebook, *knobs, **named) -> NeighbourRelaxation:
    rule = NeighbourRelaxation(*knobs, **named)
    rule.prepare(Codes(codebook))
    return rule


def plainly(p, q, codebook, k: int, delta: float, relative: bool) -> list[float]:
    """f of every code, neighbour by neighbour."""
    found = []
    for code in range(len(p)):
        others = sorted((math.dist(codebook[code], codebook[o]), o) for o in range(len(p)) if o != code)
        taken, total = 0.0, 0.0
        for _, other in others[:k]:
            total += p[other]
            if total > (delta * p[code] if relative else delta):
                break
            taken = total
        f = min(1.0, (p[code] + taken) / q[code]) if q[code] > 0 else 1.0
        found.append(f if p[code] > 0 else 0.0)
    return found


@pytest.mark.parametrize(("delta", "relative"), [(0.1, False), (0.5, True)])
def test_four_codes_on_a_line(delta, relative):
    rule = rule_for([[0.0], [0.1], [1.0], [1.2]], 2, delta, relative)
    acceptance, law, drift = emitted([LINE_P], [LINE_Q], rule)
    assert acceptance[0].tolist() == pytest.approx([1, 0.35 / 0.55, 1, 1], abs=1e-6)
    assert law[0].tolist() == pytest.approx([0.083333, 0.35, 0.333333, 0.233333], abs=1e-6)
    assert drift.item() == pytest.approx(0.1, abs=1e-6)


def test_residuals_of_the_paper_and_of_the_release_are_no_better():
    p, q = torch.tensor(LINE_P).double(), torch.tensor(LINE_Q).double()
    mass = q * torch.tensor([1, 0.35 / 0.55, 1, 1])
    moved, dropped = torch.tensor([0, 0.35, 0.40, 0.25]).double(), torch.tensor([0, 0, 0.20, 0.20]).double()
    distances = []
    for rest in (residual(p, q), residual(moved, q), (p - dropped).clamp(min=0) * torch.tensor([1, 0, 1, 1])):
        distances.append(tv(mass + (1 - mass.sum()) * rest / rest.sum(), p).item())
    assert distances[0] == pytest.approx(0.1, abs=1e-6) and distances[1] == pytest.approx(0.1, abs=1e-6)
    assert min(distances) == pytest.approx(distances[0], abs=1e-6)
    released = torch.tensor([0.1333, 0, 0.5333, 0.3333]).double()  # neighbours dropped from q, as in the LlamaGen loop
    law = mass + (1 - mass.sum()) * released / released.sum()
    assert tv(law, p).item() == pytest.approx(0.116667, abs=1e-4)


def test_the_table_lists_the_nearest_codes_first_and_never_the_code_itself():
    table = NeighbourTable.build(CODES, 23).neighbours
    assert torch.equal(table.sort(1).values, torch.tensor([[o for o in range(24) if o != c] for c in range(24)]))
    distance = (CODES[:, None] - CODES[table]).norm(dim=-1)
    assert (distance.diff(dim=1) >= -1e-6).all()
    assert torch.equal(NeighbourTable.build(CODES, 5).neighbours, table[:, :5])
    assert NeighbourTable.build(CODES, 100).neighbours.shape == (24, 23)


def test_tables_are_kept_by_the_content_of_the_codebook():
    first = NeighbourTable.build(CODES, 4)
    assert NeighbourTable.build(CODES.clone(), 4) is first
    other = NeighbourTable.build(CODES.flip(0), 4)
    assert not torch.equal(other.neighbours, first.neighbours)


@pytest.mark.parametrize(("k", "delta", "relative"), [(1, 0.05, False), (4, 0.1, False), (20, 0.3, False),
                                                      (3, 1.0, True), (20, 4.0, True)])  # fmt: skip
def test_sums_in_blocks_equal_a_loop_over_neighbours(k, delta, relative):
    acceptance, _, drift = emitted(P, Q, rule_for(CODES, k, delta, relative))
    codes = CODES.tolist()
    wanted = [plainly(p, q, codes, k, delta, relative) for p, q in zip(P.tolist(), Q.tolist(), strict=True)]
    assert (acceptance - torch.tensor(wanted)).abs()[Q > 0].max() < 1e-5
    assert drift.max() > 0.01


def test_acceptance_does_not_fall_with_more_neighbours():
    before = torch.zeros(())
    for k in (0, 1, 2, 5, 17, 23):
        acceptance = emitted(P, Q, rule_for(CODES, k, 0.3, False))[0]
        assert (acceptance >= before - 1e-6).all()
        before = acceptance


def test_marks_without_a_vector_have_no_neighbours():
    p, q = (torch.nn.functional.pad(law, (0, 1)) for law in (P, Q))
    p = torch.cat([p, torch.eye(25)[24:]])
    q = torch.cat([q, torch.eye(25)[24:]])
    rule = rule_for(CODES, 5)
    window = window_of(p[:, None], q[:, None], draws_from(q)[:, None])
    mass = rule.relaxed_mass(window)[:, 0]
    assert torch.equal(mass[:-1, :24], rule.relaxed_mass(window_of(P[:, None], Q[:, None]))[:, 0])
    assert torch.equal(mass[-1], torch.eye(25)[24])


@pytest.mark.parametrize("base", SEED_BASES)
def test_whole_images_follow_the_emitted_law(base):
    """Three tokens, one relaxed draft each: the first and the last are plain draws."""
    model, count = ToyTarget(4, 1, 3, scale=1.5, seed=2), 40_000
    rule = NeighbourRelaxation(2, 0.2, relative=False, relax_fresh=True)
    tokens = run_toy(model, JacobiDrafter(window=2, init="uniform"), seeds_from(base, count), relaxation=rule).tokens
    codes, law = ToyAdapter(model).codebook.tolist(), {}
    for sequence, probability in model.enumerate_law(Warp()).items():
        p = model.table[0, 1 + sequence[0]].softmax(-1)
        f = torch.tensor(plainly(p.tolist(), [0.25] * 4, codes, 2, 0.2, False))
        rest = (p - f / 4).clamp(min=0)
        emitted_law = f / 4 + (1 - f.mean()) * rest / rest.sum()
        law[sequence] = probability * (emitted_law[sequence[1]] / p[sequence[1]]).item()
    assert sum(law.values()) == pytest.approx(1, abs=1e-5)
    assert law_p_value(tokens, law) > 1e-3
    assert law_p_value(tokens, model.enumerate_law(Warp())) < 1e-6


def test_a_saved_table_is_used_again_and_refuses_another_codebook(tmp_path, monkeypatch):
    rule = rule_for(CODES, 5, keep_table=True)
    rule.save_pretrained(tmp_path)
    loaded = NeighbourRelaxation.from_pretrained(tmp_path)
    monkeypatch.setattr(NeighbourTable, "build", None)  # nothing may be built
    loaded.prepare(Codes(CODES.to(torch.bfloat16)))  # the same codebook in half precision
    assert torch.equal(loaded._neighbours, rule._neighbours)
    with pytest.raises(ValueError, match="the saved neighbour table was made for 24 codes, this model has 23"):
        loaded.prepare(Codes(CODES[:23]))
    with pytest.raises(ValueError, match="the saved neighbour table was made for another codebook"):
        loaded.prepare(Codes(CODES.flip(1)))
    (tmp_path / rule.file_name).write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"neighbours\.safetensors holds no neighbour table"):
        NeighbourRelaxation.from_pretrained(tmp_path)


def test_a_table_of_another_size_is_refused(tmp_path):
    rule_for(CODES, 5, keep_table=True).save_pretrained(tmp_path)
    changed = NeighbourRelaxation(7)
    changed.read_file(tmp_path / NeighbourRelaxation.file_name)
    with pytest.raises(ValueError, match="has 5 neighbours a code, k=7 wants 7"):
        changed.prepare(Codes(CODES))


def test_without_keep_table_only_the_config_is_saved(tmp_path):
    rule_for(CODES, 5, keep_table=True).save_pretrained(tmp_path)
    rule_for(CODES, 5).save_pretrained(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_the_embedded_model_reports_its_drift():
    pipeline = CSDAutoregressivePipeline.from_pretrained("embedded")
    pipeline.set_progress_bar_config(disable=True)
    pipeline.register_modules(drafter=JacobiDrafter(window=32), relaxation=NeighbourRelaxation(10, 1.0))
    call = {"prompt": "panda on grass", "seed": 3, "num_images_per_prompt": 6, "output_type": "latent"}
    relaxed = pipeline(**call).traces
    pipeline.register_modules(relaxation=NeighbourRelaxation(0))
    exact = pipeline(**call).traces
    assert all(trace.drift == 0 for trace in exact) and all(trace.drift > 0 for trace in relaxed)
    assert sum(trace.nfe for trace in relaxed) < sum(trace.nfe for trace in exact)


def test_strength_zero_is_exact():
    assert NeighbourRelaxation(k=0).exact and NeighbourRelaxation(delta=0).exact and not NeighbourRelaxation().exact


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"k": -1}, "k must be an integer >= 0, got -1"),
        ({"k": 2.0}, "k must be an integer >= 0, got 2.0"),
        ({"delta": -0.1}, "delta must be a number >= 0, got -0.1"),
        ({"delta": 1.1, "relative": False}, "delta must be between 0 and 1, got 1.1"),
    ],
)
def test_bad_knobs_are_refused(knobs, message):
    with pytest.raises(ValueError, match=message):
        NeighbourRelaxation(**knobs)
