import pytest
from click.testing import CliRunner

from csd_pipeline.cli import app


@pytest.fixture
def csd(tmp_path, monkeypatch):
    """Runs `csd ARGUMENTS` in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(*arguments, stdin=None):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, prog_name="csd")

    return run


@pytest.fixture
def no_model(monkeypatch):
    """Whoever loads a model fails the test."""

    def refuse(*_):
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("csd_pipeline.cli.run._load", refuse)
