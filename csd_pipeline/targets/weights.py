"""Reading a weight outside its module's forward, where an offloading hook may keep it elsewhere."""

from __future__ import annotations

from torch import Tensor, nn


def weight_of(module: nn.Module, name: str = "weight") -> Tensor | None:
    """The parameter ``name`` of a module, real also when accelerate offloads it (sequential offload, device maps).

    A hook puts real weights in place for a forward only; outside it they are on the meta device.
    """
    hook = getattr(module, "_hf_hook", None)
    if not getattr(hook, "offload", False):
        return getattr(module, name)
    hook.pre_forward(module)
    weight = getattr(module, name)
    weight = None if weight is None else weight.detach()
    hook.post_forward(module, None)
    return weight
