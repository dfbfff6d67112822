import math

import pytest
import torch
from scipy import stats

from csd_pipeline.decoding import noise as noise_module
from csd_pipeline.decoding.noise import IndexedNoise, Purpose, kept_bytes, philox4x32, seed_words
from csd_pipeline.decoding.sampling import draw_by_race


def words(*values: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(v) for v in values)


UNIFORM_PURPOSES = [purpose for purpose in Purpose if purpose is not Purpose.GUMBEL]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, expected):
    assert tuple(int(w) for w in philox4x32(words(*counter), words(*key))) == expected


def noise(*seeds: int) -> IndexedNoise:
    return IndexedNoise(seed_words(list(seeds)))


def grid(rows: int, columns: int) -> torch.Tensor:
    return torch.arange(columns).expand(rows, columns).contiguous()


@pytest.mark.parametrize("purpose", UNIFORM_PURPOSES)
def test_uniforms_are_uniform(purpose):
    values = noise(*range(50)).uniform(grid(50, 2000), purpose, torch.arange(50))
    assert values.dtype == torch.float32
    assert values.min() >= 0 and values.max() < 1
    assert stats.kstest(values.flatten().numpy(), "uniform").pvalue > 1e-3
    assert abs(values.mean() - 0.5) < 5 / math.sqrt(12 * values.numel())
    assert abs(values.var() - 1 / 12) < 1e-3
    serial = torch.corrcoef(torch.stack([values[:, :-1].flatten(), values[:, 1:].flatten()]))[0, 1]
    assert abs(serial) < 5 / math.sqrt(values.numel())


def test_neighbouring_seeds_are_uncorrelated():
    values = noise(*range(200)).uniform(grid(200, 2000), Purpose.VERIFY, torch.zeros(200, dtype=torch.int64))
    correlation = torch.corrcoef(torch.stack([values[:-1].flatten(), values[1:].flatten()]))[0, 1]
    assert abs(correlation) < 5 / math.sqrt(values.numel())


def test_noise_depends_on_nothing_but_its_index():
    seeds, positions, draws = (
        [5, 2**40 + 1, 5],
        torch.tensor([[7, 3, 9], [1, 2, 3], [9, 9, 7]]),
        torch.tensor([4, 0, 4]),
    )
    together = noise(*seeds)
    uniform, gumbel = together.uniform(positions, Purpose.ENTRY, draws), together.gumbel(positions, 13)
    for image, seed in enumerate(seeds):
        for slot in range(3):
            alone, position = noise(seed), positions[image : image + 1, slot : slot + 1]
            assert alone.uniform(position, Purpose.ENTRY, draws[image : image + 1]) == uniform[image, slot]
            assert torch.equal(alone.gumbel(position, 13)[0, 0], gumbel[image, slot])
    assert uniform[0, 0] == uniform[2, 2] and uniform[0, 2] == uniform[2, 0] == uniform[2, 1]


def test_one_column_of_positions_equals_a_vector():
    both, position, draw = noise(1, 2), torch.tensor([3, 4]), torch.tensor([1, 1])
    assert torch.equal(
        both.uniform(position, Purpose.RESIDUAL, draw), both.uniform(position[:, None], Purpose.RESIDUAL, draw)[:, 0]
    )


def test_gumbel_of_a_smaller_vocabulary_is_the_start_of_a_larger_one():
    position = torch.tensor([[0, 1, 500]])
    assert torch.equal(noise(3).gumbel(position, 10), noise(3).gumbel(position, 33)[..., :10])


def test_purposes_draws_positions_and_seeds_share_no_number():
    position = grid(1, 400)
    values = [
        noise(seed).uniform(position, purpose, torch.tensor([draw]))
        for seed in (0, 1, 2**32)
        for purpose in UNIFORM_PURPOSES
        for draw in (0, 1, 2)
    ]
    values = torch.cat(values).flatten()
    # 24-bit numbers: among n of them about n^2 / 2^25 coincide by chance
    assert len(values) - len(values.unique()) < 4 * len(values) ** 2 / 2**25
    by_row = values.view(-1, 400)
    correlations = torch.corrcoef(by_row) - torch.eye(len(by_row))
    assert correlations.abs().max() < 0.3


def test_uniforms_share_no_number_with_the_gumbel_noise():
    position = grid(1, 400)
    raced = 1 - torch.exp(-torch.exp(-noise(7).gumbel(position, 4).double()))  # the uniforms it was made of
    for draw in (0, 1):
        for purpose in UNIFORM_PURPOSES:
            values = noise(7).uniform(position, purpose, torch.tensor([draw]))[..., None]
            assert ((raced - values).abs() < 1e-5).sum() < 5  # 400 x 4 pairs, 0.03 expected by chance


@pytest.mark.parametrize("word", [0, 2**32 - 1])
def test_gumbel_noise_of_extreme_words_is_a_number(word, monkeypatch):
    """One in four thousand million: it must neither win every race nor lose one against impossible tokens."""
    monkeypatch.setattr(noise_module, "philox4x32", lambda counter, *_: (torch.full((1, 1, 2), word),) * 4)
    assert torch.isfinite(noise(1).gumbel(grid(1, 1), 8)).all()


def test_gumbel_moments():
    values = noise(*range(8)).gumbel(grid(8, 50), 1001).double()
    assert torch.isfinite(values).all()
    assert abs(values.mean() - 0.5772156649) < 5 * math.pi / math.sqrt(6 * values.numel())
    assert abs(values.var() - math.pi**2 / 6) < 0.02
    assert stats.kstest(values.flatten()[::7].numpy(), "gumbel_r").pvalue > 1e-3


def test_gumbel_race_follows_the_law_down_to_improbable_tokens():
    law = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.0079, 0.002, 0.0001, 0.0])
    count = 200_000
    tokens = draw_by_race(law, noise(*range(2000)).gumbel(grid(2000, count // 2000), len(law)))
    seen = torch.bincount(tokens.flatten(), minlength=len(law))
    assert seen[-1] == 0
    assert stats.chisquare(seen[:-1].numpy(), (law[:-1].double() / law.double().sum() * count).numpy()).pvalue > 1e-3


def test_gumbel_race_gives_the_thousands_of_improbable_tokens_their_share():
    vocabulary, rest = 1024, 0.1
    law = torch.full((vocabulary,), rest / (vocabulary - 1))
    law[17] = 1 - rest
    tokens = draw_by_race(law, noise(*range(40)).gumbel(grid(40, 50), vocabulary))
    assert stats.binomtest(int((tokens != 17).sum()), tokens.numel(), rest).pvalue > 1e-3
    assert len(tokens[tokens != 17].unique()) > 150


def test_64_bit_seeds_are_accepted_and_differ():
    seeds = [0, 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1]
    values = noise(*seeds).uniform(grid(6, 20), Purpose.VERIFY, torch.zeros(6, dtype=torch.int64))
    assert len(values.unique(dim=0)) == len(seeds)
    assert len(noise(*seeds).gumbel(grid(6, 3), 5).flatten(1).unique(dim=0)) == len(seeds)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_other_seeds_are_refused(seed):
    with pytest.raises(ValueError, match=rf"seed {seed} is outside 0 \.\. 2\*\*64 - 1"):
        seed_words([1, seed])


def test_repeated_requests_are_answered_alike_and_new_ones_anew():
    one, position, draw = noise(1, 2), grid(2, 3), torch.tensor([0, 1])
    elsewhere = one.uniform(position + 3, Purpose.VERIFY, draw)
    assert torch.equal(one.uniform(grid(2, 6), Purpose.VERIFY, draw)[:, 3:], elsewhere)  # same draw, other positions
    first = {purpose: one.uniform(position, purpose, draw) for purpose in UNIFORM_PURPOSES}
    other = one.uniform(position, Purpose.VERIFY, draw + 1)
    assert not torch.equal(other, first[Purpose.VERIFY])
    assert all(torch.equal(one.uniform(position.clone(), p, draw), values) for p, values in first.items())


@pytest.mark.parametrize("positions", [5, 6])
def test_a_kept_table_holds_the_same_gumbel_noise(positions):
    tabled, plain = IndexedNoise(seed_words([1, 2, 3]), positions), noise(1, 2, 3)
    for position in (grid(3, 3), grid(3, 3) + 2):
        assert torch.equal(tabled.gumbel(position, 7), plain.gumbel(position, 7))
    assert torch.equal(tabled.gumbel(grid(3, 3), 5), plain.gumbel(grid(3, 3), 5))
    rows = torch.tensor([2, 0])
    assert torch.equal(tabled.keep(rows).gumbel(grid(2, 4), 5), plain.gumbel(grid(3, 4), 5)[rows])


def test_large_and_small_batches_share_their_gumbel_noise():
    """The table is kept for small batches only."""
    large, small = (IndexedNoise(seed_words(list(range(n))), 40) for n in (600, 2))
    assert torch.equal(large.gumbel(grid(600, 2) + 30, 400)[:2], small.gumbel(grid(2, 2) + 30, 400))


@pytest.mark.parametrize("purpose", UNIFORM_PURPOSES)
def test_uniforms_made_ahead_are_the_same_numbers(purpose):
    """Pass numbers as an integer, in any order, give what one number per image gives."""
    tabled, plain = IndexedNoise(seed_words([1, 2**63]), 9), noise(1, 2**63)
    for draw in (0, 3, 15, 16, 40, 2):
        for position in (grid(2, 4), grid(2, 4) + 5, torch.tensor([8, 0])):
            expected = plain.uniform(position, purpose, torch.tensor([draw, draw]))
            assert torch.equal(tabled.uniform(position, purpose, draw), expected)
            assert torch.equal(plain.uniform(position, purpose, draw), expected)
        rows = torch.tensor([1])
        assert torch.equal(
            tabled.keep(rows).uniform(grid(1, 4), purpose, draw), plain.uniform(grid(2, 4), purpose, draw)[1:]
        )


def counting(monkeypatch) -> list:
    """Requests for Gumbel noise that are not answered from a table; the noise itself is left out."""
    made = []

    def without_noise(self, position, vocabulary, seeds):
        made.append(position.shape[1])
        return torch.zeros(*position.shape, vocabulary)

    monkeypatch.setattr(IndexedNoise, "_gumbel", without_noise)
    return made


def test_an_image_of_a_large_model_keeps_its_gumbel_noise(monkeypatch):
    """Janus-Pro: 576 positions of 16384 codes. Single positions are made when they are asked for, windows are kept."""
    made = counting(monkeypatch)
    large = IndexedNoise(seed_words([1]), 576)
    for start in (3, 4):
        large.gumbel(grid(1, 1) + start, 16384)
    assert made == [1, 1]
    large.gumbel(grid(1, 16), 16384)
    assert sum(made) == 2 + 576 and max(made) * 16384 <= 2**20  # in parts
    for start in (3, 570):
        assert large.gumbel(grid(1, 16) + start, 16384).shape == (1, 16, 16384)
    assert sum(made) == 2 + 576


def test_a_batch_too_large_for_a_table_makes_none_when_images_leave(monkeypatch):
    made = counting(monkeypatch)
    large = IndexedNoise(seed_words(list(range(40))), 576)
    large.gumbel(grid(40, 2), 16384)
    large.keep(torch.tensor([0, 1])).gumbel(grid(2, 2), 16384)
    assert made == [2, 2]


def test_a_table_made_in_parts_holds_the_same_noise(monkeypatch):
    monkeypatch.setattr(noise_module, "_CHUNK", 30)
    tabled = IndexedNoise(seed_words([1, 2]), 9)
    assert torch.equal(tabled.gumbel(grid(2, 9), 5), noise(1, 2).gumbel(grid(2, 9), 5))


@pytest.mark.parametrize("positions", [0, 9])
def test_noise_copies_nothing_to_the_device(positions, monkeypatch):
    """A copy from the host in every pass would make a GPU wait for it."""
    once = IndexedNoise(seed_words([1, 2]), positions)
    once.uniform(grid(2, 3), Purpose.VERIFY, 0)

    def refuse(*_, **__):
        raise AssertionError("a tensor made of host data")

    for name in ("tensor", "as_tensor", "from_numpy"):
        monkeypatch.setattr(torch, name, refuse)
    for draw in (1, 16):
        once.uniform(grid(2, 3), Purpose.RESIDUAL, draw)
    once.gumbel(grid(2, 3), 5)


def test_kept_rows_keep_their_noise():
    position, draw = grid(3, 4), torch.tensor([0, 1, 2])
    rows = torch.tensor([2, 0])
    kept = noise(7, 8, 9).keep(rows)
    whole = noise(7, 8, 9)
    assert torch.equal(
        kept.uniform(position[rows], Purpose.VERIFY, draw[rows]), whole.uniform(position, Purpose.VERIFY, draw)[rows]
    )


def test_gumbel_noise_is_not_a_uniform():
    with pytest.raises(ValueError, match=r"use gumbel\(\)"):
        noise(1).uniform(grid(1, 2), Purpose.GUMBEL, 0)


def test_noise_made_ahead_is_the_same_noise():
    direct, ahead = noise(3, 2**63), IndexedNoise(seed_words([3, 2**63]), positions=7)
    position = grid(2, 7)
    for draw in (0, 1, 15, 16, 40):
        for purpose in (Purpose.VERIFY, Purpose.RESIDUAL, Purpose.REDRAW, Purpose.ENTRY):
            one_by_one = direct.uniform(position, purpose, torch.tensor([draw, draw]))
            assert torch.equal(ahead.uniform(position, purpose, draw), one_by_one)
    assert torch.equal(ahead.gumbel(position, 9), direct.gumbel(position, 9))
    kept = torch.tensor([1])
    assert torch.equal(
        ahead.keep(kept).uniform(position[kept], Purpose.VERIFY, 5), ahead.uniform(position, Purpose.VERIFY, 5)[kept]
    )


def test_the_bytes_of_kept_noise_are_those_of_its_tables(monkeypatch):
    kept, position = IndexedNoise(seed_words([1, 2]), 6), grid(2, 6)
    kept.prepare([0, 0])
    kept.gumbel(position, 10)
    kept.uniform(position, Purpose.VERIFY, torch.zeros(2, dtype=torch.int64))
    tables = [kept._gumbel_table, *kept._tables.values()]
    assert len(tables) == 2 and kept_bytes(2, 6, 10) == sum(table.nbytes for table in tables)
    monkeypatch.setattr(noise_module, "_LARGE_TABLE", 2 * 6 * 10 - 1)
    assert kept_bytes(2, 6, 10) == tables[1].nbytes


def test_noise_made_within_passes_is_the_same_noise_and_nothing_is_kept():
    ahead, within = (IndexedNoise(seed_words([1, 2]), positions=6) for _ in range(2))
    within.make_within_passes()
    for draw in (0, 17):
        for noise in (ahead, within):
            noise.prepare([draw, draw])
        for purpose in (Purpose.VERIFY, Purpose.RESIDUAL, Purpose.REDRAW, Purpose.ENTRY):
            both = [noise.uniform(grid(2, 6), purpose, torch.tensor([draw, draw])) for noise in (ahead, within)]
            assert torch.equal(*both)
    assert torch.equal(ahead.gumbel(grid(2, 6), 5), within.gumbel(grid(2, 6), 5))
    assert torch.equal(ahead.gumbel(grid(2, 1), 5), within.gumbel(grid(2, 1), 5))
    assert ahead._tables and not within._tables and within._gumbel_table is None
    kept, one = within.keep(torch.tensor([1])), torch.tensor([0])
    kept.prepare([0])
    assert torch.equal(kept.gumbel(grid(1, 6), 5), ahead.gumbel(grid(2, 6), 5)[1:])
    kept.uniform(grid(1, 6), Purpose.VERIFY, one)
    assert not kept._tables and kept._gumbel_table is None


def test_gumbel_noise_made_ahead_is_used_within_passes_too():
    noise = IndexedNoise(seed_words([3]), positions=6)
    assert noise.make_gumbel_ahead(5)
    noise.make_within_passes()
    noise._gumbel_table.fill_(7.0)
    assert (noise.gumbel(grid(1, 4), 5) == 7).all()


def test_newcomers_bring_the_gumbel_noise_they_have(monkeypatch):
    mine, newcomers = (IndexedNoise(seed_words(seeds), positions=6) for seeds in ([1, 2], [3]))
    for noise in (mine, newcomers):
        noise.make_gumbel_ahead(5)
    monkeypatch.setattr(IndexedNoise, "_fill_gumbel_table", None)  # nothing is made anew
    mine.admit([1], newcomers)
    assert torch.equal(mine.gumbel(grid(2, 6), 5), IndexedNoise(seed_words([1, 3])).gumbel(grid(2, 6), 5))
