"""The newest front-end to be had, in both renderers: the shortest way through the pack. The rest is in test_browser."""

import pytest
from server import NEWEST_FRONTEND
from test_browser import FIRST, check_template

pytestmark = pytest.mark.parametrize("page_server", [NEWEST_FRONTEND], ids=["1.58.1"], indirect=True, scope="session")


def test_the_first_template_opens_runs_and_shows_picture_and_plot(editor, request):
    check_template(editor, FIRST, f"newest-frontend-{request.node.callspec.id}")
