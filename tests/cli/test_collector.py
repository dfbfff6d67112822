import gc

import pytest

from csd_pipeline.cli.collector import collector_paused


@pytest.fixture
def collections():
    """Every collection that starts during the test."""
    seen = []

    def count(phase, details):
        if phase == "start":
            seen.append(details["generation"])

    gc.callbacks.append(count)
    yield seen
    gc.callbacks.remove(count)
    gc.unfreeze()


def test_no_collection_inside_and_nothing_made_inside_is_looked_through_again(collections):
    gc.collect()
    collections.clear()
    frozen = gc.get_freeze_count()
    with collector_paused():
        made = [[] for _ in range(20_000)]
        assert collections == []
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() - frozen >= len(made)


def test_the_collector_is_back_after_an_error_and_stays_off_where_it_was_off():
    try:
        with pytest.raises(ValueError), collector_paused():
            raise ValueError
        assert gc.isenabled()
        gc.disable()
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
