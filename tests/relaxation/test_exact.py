from helpers import emitted, random_laws

from csd_pipeline.relaxation import Exact


def test_plain_speculative_decoding_everywhere():
    p, q = random_laws(300, 6, seed=1), random_laws(300, 6, seed=2)
    acceptance, law, drift = emitted(p, q, Exact())
    drawable = q > 0
    assert ((acceptance - p / q).abs()[drawable & (p < q)] < 1e-6).all() and (
        acceptance[drawable & (p >= q)] == 1
    ).all()
    assert (law - p.double()).abs().max() < 1e-6 and (drift == 0).all()
    assert Exact().exact
