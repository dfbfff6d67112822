"""The front-end the newest server asks for, in both renderers: the shortest ways; the rest is in test_browser."""

import pytest
from server import NEWEST
from test_browser import FIRST, check_template
from test_browser import test_a_workflow_of_the_janus_pack_opens_on_our_nodes as test_janus  # noqa: F401
from test_browser import test_the_list_of_sizes_follows_the_loaded_target as test_sizes  # noqa: F401

pytestmark = pytest.mark.parametrize("page_server", [NEWEST], ids=["1.47.12"], indirect=True, scope="session")


def test_the_first_template_opens_runs_and_shows_picture_and_plot(editor, request):
    check_template(editor, FIRST, f"first-{request.node.callspec.id}")
