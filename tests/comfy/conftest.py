"""Servers and pages for the tests of the node pack. Run by .ci/comfy, which sets up what they need."""

import os
from pathlib import Path

import pytest
from editor import Editor, launch
from models import lay_out_models
from playwright.sync_api import sync_playwright
from server import NEWEST, OLDEST, start


def started(folder: Path, tree: str, frontend: str | None):
    lay_out_models(folder)
    server = start(folder, tree, frontend)
    yield server
    server.stop()


@pytest.fixture(scope="session", params=[OLDEST, NEWEST], ids=["0.16.3", "0.30.0"])
def server(request, tmp_path_factory):
    """Both supported ends of ComfyUI, one after the other."""
    yield from started(tmp_path_factory.mktemp("server"), *request.param)


@pytest.fixture(scope="session")
def page_server(request, tmp_path_factory):
    """The server of the page; a module of tests says with which front-end, by indirect parameters."""
    yield from started(tmp_path_factory.mktemp("page-server"), *request.param)


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory):
    """Where screenshots go: CSD_ARTEFACTS, else a temporary folder."""
    folder = os.environ.get("CSD_ARTEFACTS")
    folder = Path(folder) if folder else tmp_path_factory.mktemp("artefacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session", params=[False, True], ids=["canvas", "nodes-2"])
def page(request, page_server, browser, artefacts):
    """The page in either renderer, loaded once."""
    editor = Editor(browser, page_server, request.param, artefacts)
    yield editor
    editor.close()


@pytest.fixture
def editor(page):
    """The page with an empty canvas; an uncaught exception of the page fails the test."""
    page.clear()
    page.errors.clear()
    yield page
    assert not page.errors, page.errors
