import math

import pytest
import torch
from helpers import every_phrase, noise_of, random_laws, rule_of, run_toy, window_of

from csd_pipeline import CSDAutoregressivePipeline
from csd_pipeline.decoding import Warp
from csd_pipeline.decoding.verification import verify
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import Exact, PhraseRelaxation
from csd_pipeline.relaxation.phrase import reached
from csd_pipeline.relaxation.phrase_library import PhraseLibrary
from csd_pipeline.targets import Grid, adapter_for
from csd_pipeline.targets.codebook import fingerprint
from csd_pipeline.targets.toy import ToyAdapter, ToyTarget


class Codes:
    """A target of which codebook and columns matter."""

    def __init__(self, codes: int = 6, columns: int = 100):
        self.codebook = torch.randn(codes, 2, generator=torch.Generator().manual_seed(0))
        self.grid = Grid(9, columns)


def library_of(adapter, *phrases) -> PhraseLibrary:
    by_length = {n: sorted(p for p in phrases if len(p) == n) for n in sorted({len(p) for p in phrases})}
    tensors = {n: torch.tensor(ids) for n, ids in by_length.items()}
    counts = {n: torch.ones(len(ids), dtype=torch.int64) for n, ids in tensors.items()}
    return PhraseLibrary(tensors, counts, len(adapter.codebook), fingerprint(adapter.codebook))


def rule_with(*phrases, columns: int = 100, **knobs) -> PhraseRelaxation:
    adapter, rule = Codes(columns=columns), PhraseRelaxation(**knobs)
    rule._library = library_of(adapter, *phrases)
    rule.prepare(adapter)
    return rule


def window_with(drafts, p_draft, q_draft, **options):
    """One image of six codes with these probabilities at the drafts, the rest on the next code."""
    laws = torch.zeros(2, 1, len(drafts), 6)
    for law, values in zip(laws, (p_draft, q_draft), strict=True):
        for j, (code, value) in enumerate(zip(drafts, values, strict=True)):
            law[0, j, code], law[0, j, (code + 1) % 6] = value, 1 - value
    return window_of(*laws, [list(drafts)], **options)


def acceptance_of(rule, window) -> list[float]:
    return verify(window, rule, None, *noise_of(window)).acceptance[0].tolist()


def singly(ratios) -> list[float]:
    return [min(1.0, r) for r in ratios]


@pytest.mark.parametrize(
    ("phrase", "aggregate", "rho"),
    [((1, 2), "product", 1.0), ((1, 2, 3), "product", 0.5), ((1, 2, 3), "geomean", 0.793701)],
)
def test_three_draft_example(phrase, aggregate, rho):
    """Ratios 2/3, 3/2, 1/2: judged one by one the three pass with probability 1/3."""
    window = window_with((1, 2, 3), (0.2, 0.3, 0.1), (0.3, 0.2, 0.2))
    f = acceptance_of(rule_with(phrase, aggregate=aggregate), window)
    plain = singly((2 / 3, 1.5, 0.5))
    for last in range(1, len(phrase) + 1):
        assert math.prod(f[:last]) == pytest.approx(rho + (1 - rho) * math.prod(plain[:last]), abs=1e-6)
    assert f[len(phrase) :] == pytest.approx(plain[len(phrase) :], abs=1e-6)
    assert math.prod(plain) == pytest.approx(1 / 3)


def test_geometric_mean_never_accepts_less_than_the_product():
    laws = [random_laws(3000, 6, seed=i).view(1000, 3, 6) for i in range(2)]
    window = window_of(*laws, torch.randint(6, (1000, 3), generator=torch.Generator().manual_seed(2)))
    product, mean = (
        verify(window, rule_of("phrase", 6, aggregate=a), None, *noise_of(window)).acceptance.cumprod(-1)
        for a in ("product", "geomean")
    )
    drawable = (window.q_draft > 0).all(-1)
    assert (mean >= product - 1e-6)[drawable].all() and (mean > product + 0.01)[drawable].any()


def test_longest_phrases_are_cut_from_the_left():
    rule = rule_with((1, 2), (2, 3), (1, 2, 3), (3, 4))
    drafts = (1, 2, 3, 4, 1, 2, 4, 2, 3)
    window = window_with(drafts, [0.5] * 9, [0.5] * 9)
    starts = rule.group_starts(window, ~window.valid)[0].tolist()
    assert starts == [True, False, False, True, True, False, True, True, False]


@pytest.mark.parametrize("size", [(1, 1, 1, 1), (2, 2, 2, 1), (3, 1, 1, 1), (1, 3, 2, 1), (4, 4, 4, 4)])
def test_reached_slots_are_those_of_a_walk(size):
    walk, slot = [], 0
    while slot < 4:
        walk.append(slot)
        slot += size[slot]
    assert reached(torch.tensor([size])).nonzero()[:, 1].tolist() == walk


def test_phrases_end_with_their_row():
    """Three columns; the window starts at position 1."""
    rule = rule_with((1, 2), (1, 2, 3), columns=3)
    window = window_with((1, 2, 3, 1, 2), [0.5] * 5, [0.5] * 5)
    assert window.positions[0, 0] == 1
    assert rule.group_starts(window, ~window.valid)[0].tolist() == [True, False, True, True, False]
    window.start = window.start - 1
    del window.positions
    assert rule.group_starts(window, ~window.valid)[0].tolist() == [True, False, False, True, False]


def test_fresh_drafts_and_padding_belong_to_no_phrase():
    drafts, p, q = (1, 2, 1, 2, 1, 2), [0.2] * 6, [0.4] * 6
    fresh = torch.tensor([[False, False, False, True, False, False]])
    window = window_with(drafts, p, q, fresh=fresh, lengths=[5])
    rule = rule_with((1, 2))
    assert rule.group_starts(window, rule._alone(window))[0].tolist() == [True, False, True, True, True, True]
    assert acceptance_of(rule, window)[2:5] == pytest.approx([0.5] * 3, abs=1e-6)
    eager = rule_with((1, 2), relax_fresh=True)
    assert eager.group_starts(window, eager._alone(window))[0].tolist() == [True, False, True, False, True, True]


def test_without_known_phrases_it_is_plain_decoding_bit_for_bit():
    laws = [random_laws(2000, 6, seed=i).view(500, 4, 6) for i in range(2)]
    window = window_of(*laws, torch.randint(6, (500, 4)))
    rule = rule_with((5, 5))
    window.drafts.clamp_(max=4)
    ours, plain = (verify(window, r, None, *noise_of(window)) for r in (rule, Exact()))
    assert torch.equal(ours.accepted, plain.accepted) and torch.equal(ours.next_token, plain.next_token)
    assert torch.equal(ours.acceptance, plain.acceptance) and (ours.drift == 0).all()


def test_pairs_are_chosen_by_count_and_mutual_information():
    """Of 45 pairs 12 are 01 and 12 are 12; 18 start with 0, 15 with 1, 18 end with 1 and 18 with 2."""
    codes = Codes()
    grids = torch.tensor([[[0, 1, 2, 0, 1, 2], [0, 1, 2, 0, 1, 2], [0, 0, 2, 2, 1, 1]]] * 3)
    library = PhraseLibrary.collect(grids, codes.codebook, min_count=7, npmi=0.3)
    assert library.phrases[2].tolist() == [[0, 1], [1, 2]] and library.counts[2].tolist() == [12, 12]
    assert library.phrases[3].tolist() == [[0, 1, 2]] and library.counts[3].tolist() == [12]
    weakest = math.log((12 / 45) / (18 / 45) ** 2) / -math.log(12 / 45)
    for npmi, found in ((weakest - 1e-6, [[0, 1], [1, 2]]), (weakest + 1e-6, [[1, 2]])):
        assert PhraseLibrary.collect(grids, codes.codebook, min_count=7, npmi=npmi).phrases[2].tolist() == found


def test_the_order_of_the_pictures_does_not_matter():
    grids = torch.randint(6, (40, 5, 7), generator=torch.Generator().manual_seed(1))
    here, there = (PhraseLibrary.collect(g, Codes().codebook, 4, 2, -1.0) for g in (grids, grids.flip(0)))
    assert all(torch.equal(here.phrases[n], there.phrases[n]) for n in (2, 3, 4))
    assert all(torch.equal(here.counts[n], there.counts[n]) for n in (2, 3, 4))
    assert here.counts[2].sum() == 40 * 5 * 6 - (here.counts[2] < 2).sum()


def test_the_library_travels_beside_the_config(tmp_path):
    (tmp_path / "a").mkdir()
    file = tmp_path / "found.safetensors"
    library_of(Codes(), (1, 2), (1, 2, 3)).save(file)
    rule = PhraseRelaxation(library=str(file), max_len=2)
    rule.prepare(Codes())
    rule.save_pretrained(tmp_path / "a")
    file.unlink()
    loaded = PhraseRelaxation.from_pretrained(tmp_path / "a")
    loaded.prepare(Codes())
    assert {n: keys.tolist() for n, keys in loaded._known.items()} == {2: [8]}
    assert loaded._library.phrases[3].tolist() == [[1, 2, 3]]


def test_libraries_of_other_models_are_refused():
    rule = PhraseRelaxation()
    rule._library = library_of(Codes(), (1, 2))
    with pytest.raises(ValueError, match="the phrase library was made for 6 codes, this model has 5"):
        rule.prepare(Codes(5))
    other = Codes()
    other.codebook = other.codebook.flip(0)
    with pytest.raises(ValueError, match="the phrase library was made for another codebook"):
        rule.prepare(other)


def test_a_missing_library_is_refused_before_the_model_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("csd_pipeline.targets.toy.ToySession._prefill", None)
    with pytest.raises(ValueError, match="the rule 'phrase' needs library=FILE; `csd phrases -o FILE`"):
        run_toy(ToyTarget(), relaxation=PhraseRelaxation())
    with pytest.raises(ValueError, match=r"no phrase library '.*none\.safetensors'"):
        run_toy(ToyTarget(), relaxation=PhraseRelaxation(library=str(tmp_path / "none.safetensors")))
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.safetensors holds no phrase library"):
        run_toy(ToyTarget(), relaxation=PhraseRelaxation(library=str(tmp_path / "bad.safetensors")))


def test_what_is_reported_bounds_the_distance_of_whole_images():
    model, count = ToyTarget(3, 1, 5, scale=1.5, seed=5), 40_000
    rule = PhraseRelaxation()
    rule._library = every_phrase(ToyAdapter(model))
    result = run_toy(model, JacobiDrafter(window=4), range(count), relaxation=rule)
    found, counts = result.tokens.unique(dim=0, return_counts=True)
    seen = dict(zip(map(tuple, found.tolist()), (counts / count).tolist(), strict=True))
    target = model.enumerate_law(Warp())
    distance = 0.5 * sum(abs(seen.get(x, 0.0) - target[x]) for x in target)
    noise = sum((x * (1 - x) / (2 * math.pi * count)) ** 0.5 for x in target.values())
    spent = sum(trace.drift for trace in result.traces) / count
    assert spent > 0.01 and distance <= spent + 2 * noise


def test_the_embedded_model_reports_its_drift():
    pipeline = CSDAutoregressivePipeline.from_pretrained("embedded")
    pipeline.set_progress_bar_config(disable=True)
    pipeline.register_modules(drafter=JacobiDrafter(window=32), relaxation=PhraseRelaxation(aggregate="geomean"))
    pipeline.relaxation._library = every_phrase(adapter_for(pipeline.target), 2)
    relaxed = pipeline("a red apple on white", seed=3, output_type="latent").traces[0]
    pipeline.register_modules(relaxation=PhraseRelaxation(max_len=1))
    exact = pipeline("a red apple on white", seed=3, output_type="latent").traces[0]
    assert exact.drift == 0 < relaxed.drift


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"max_len": 0}, "max_len must be an integer >= 1, got 0"),
        ({"max_len": 5}, "max_len must be 1 to 4"),
        ({"aggregate": "mean"}, "unknown aggregate 'mean' .did you mean 'geomean'"),
    ],
)
def test_bad_knobs_are_refused(knobs, message):
    with pytest.raises(ValueError, match=message):
        PhraseRelaxation(**knobs)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"max_len": 1}, "max_len must be an integer >= 2, got 1"),
        ({"min_count": 0}, "min_count must be an integer >= 1, got 0"),
        ({"npmi": 1.5}, "npmi must be between -1 and 1, got 1.5"),
    ],
)
def test_bad_collections_are_refused(knobs, message):
    grids = torch.zeros(2, 3, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match=message):
        PhraseLibrary.collect(grids, Codes().codebook, **knobs)
    with pytest.raises(ValueError, match=r"ids outside 0 \.\. 5"):
        PhraseLibrary.collect(grids + 6, Codes().codebook)
    with pytest.raises(ValueError, match=r"must be integers \[images, rows, columns\]"):
        PhraseLibrary.collect(grids[0], Codes().codebook)
