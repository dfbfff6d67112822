"""Arms of a comparison: a name, the parts of a method, and the loop that runs them."""

from __future__ import annotations

from dataclasses import dataclass

from csd_pipeline.automatic_drafting import is_automatic
from csd_pipeline.checks import require_choice
from csd_pipeline.decoding.tree_verification import check_tree
from csd_pipeline.drafters import JacobiDrafter
from csd_pipeline.relaxation import Exact

from .naive_loop import check_released

PLAIN, OTHER_SEEDS, PLAIN_COMPILED, TRANSFORMERS = "ar", "ar (other seeds)", "ar compiled", "transformers"
LOOPS = ("csd", "compiled", "naive")


@dataclass(frozen=True)
class Arm:
    """One method at one window.

    Args:
        name: how the tables call it.
        parts: ``drafter``, ``relaxation``, ``alignment_filter``.
        loop: ``"csd"``, the decoding loop of this package; ``"compiled"``, the same with its pass compiled; or
            ``"naive"``, which repeats the costs of released loops.
        seed_offset: added to every seed (to see how much plain decoding itself varies).

    Raises:
        ValueError: unknown loop, an automatic window, parts that do not go together, or a method the naive loop does
            not know.
    """

    name: str
    parts: dict
    loop: str = "csd"
    seed_offset: int = 0

    def __post_init__(self):
        require_choice("loop", self.loop, LOOPS)
        if is_automatic(self.parts["drafter"]):
            raise ValueError(f"arm {self.name!r}: a comparison needs knobs that stay; choose window and redraw")
        check_tree(**self.parts)
        if self.loop == "naive":
            check_released(**self.parts)


def plain_arms(compiled: bool = False) -> list[Arm]:
    """Plain autoregressive decoding, one token per forward: the arm all ratios refer to, and again with other seeds.

    Args:
        compiled: and again compiled, to tell what compiling does from what speculation does.
    """
    parts = {"drafter": JacobiDrafter(1, "gumbel"), "relaxation": Exact(), "alignment_filter": None}
    arms = [Arm(PLAIN, parts), Arm(OTHER_SEEDS, parts, seed_offset=10**6)]
    return [*arms, Arm(PLAIN_COMPILED, parts, "compiled")] if compiled else arms
