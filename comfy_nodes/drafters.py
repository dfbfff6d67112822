"""One node per registered drafter."""

from .part_nodes import part_node
from .registry import parts_of
from .sockets import DrafterSocket

NODES = [part_node(part, "CSD/drafters", DrafterSocket, "drafter") for part in parts_of("drafters")]
