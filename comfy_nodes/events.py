"""Messages to the page that queued the run."""

from __future__ import annotations

from server import PromptServer

from .live import EVENT


def send_to_node(node_id: str, event: dict) -> None:
    """Send an event about a node to the page whose run this is."""
    server = PromptServer.instance
    server.send_sync(EVENT, {"node": node_id, **event}, server.client_id)
