"""One tiny pipeline per session for tests that only call it, the folders it writes, and pipelines to change."""

import pytest
from tiny_janus import draw, tiny_model, tiny_pipeline, write_stock


@pytest.fixture(scope="session")
def shared():
    """Never change it: ask for ``pipeline`` instead."""
    return tiny_pipeline()


@pytest.fixture(scope="session")
def expected(shared):
    """Token ids [1, 16] every way of loading the same components must draw."""
    return draw(shared)


@pytest.fixture
def pipeline(shared):
    """May be changed, its target not."""
    return tiny_pipeline(target=shared.target)


@pytest.fixture
def fresh_pipeline():
    """May be changed, weights included."""
    return tiny_pipeline(target=tiny_model())


@pytest.fixture(scope="session")
def saved(shared, tmp_path_factory):
    """Folder written by ``save_pretrained`` with remote-code files."""
    folder = tmp_path_factory.mktemp("saved")
    shared.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def plain(shared, tmp_path_factory):
    """Folder written by ``save_pretrained(remote_code=False)``."""
    folder = tmp_path_factory.mktemp("plain")
    shared.save_pretrained(folder, remote_code=False)
    return folder


@pytest.fixture(scope="session")
def stock(shared, tmp_path_factory):
    """A transformers checkpoint that has never heard of diffusers."""
    folder = tmp_path_factory.mktemp("stock")
    write_stock(shared, folder)
    return folder
