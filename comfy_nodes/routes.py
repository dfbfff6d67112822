"""What the page asks the server besides ComfyUI's own questions."""

from __future__ import annotations

import asyncio

from aiohttp import web
from server import PromptServer

from . import memory

SIZES = "/csd/sizes"


@PromptServer.instance.routes.get(SIZES)
async def sizes(request: web.Request) -> web.Response:
    """``?model=NAME`` -> ``{"sizes": [[width, height], ...]}``, the usual one first; 400 ``{"error": sentence}``."""
    from .sizes import sizes_of

    try:
        found = await asyncio.to_thread(sizes_of, request.query.get("model", ""), memory.roots())
    except ValueError as error:
        return web.json_response({"error": str(error)}, status=400)
    return web.json_response({"sizes": found})
