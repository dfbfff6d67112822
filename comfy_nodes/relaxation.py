"""One node per registered relaxation."""

from .part_nodes import part_node
from .registry import parts_of
from .sockets import RelaxationSocket

NODES = [part_node(part, "CSD/relaxation", RelaxationSocket, "relaxation") for part in parts_of("relaxations")]
