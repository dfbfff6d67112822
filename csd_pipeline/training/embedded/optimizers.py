"""Muon in float32 with its work shared among processes, AdamW for the rest, and the learning-rate schedule."""

import torch
import torch.distributed as dist
from torch import nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrices: torch.Tensor, iterations: int = 5) -> torch.Tensor:
    """(n, rows, columns) -> same shape with all singular values pulled close to 1 (Newton-Schulz, float32)."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised per matrix. torch's own runs in bfloat16, which most CPUs only emulate.

    With a process group, each process orthogonalises its share of the matrices and the results are summed, so every
    process applies the same update.
    """

    def __init__(self, matrices: list[nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.01):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            directions = [self._direction(p, group["momentum"]) for p in group["params"]]
            for parameter, update in zip(group["params"], shared_orthogonalise(directions), strict=True):
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * max(1, parameter.shape[0] / parameter.shape[1]) ** 0.5)

    def _direction(self, parameter: nn.Parameter, momentum: float) -> torch.Tensor:
        """Nesterov momentum, as an average of gradients."""
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(state["momentum"], momentum)


def shared_orthogonalise(matrices: list[torch.Tensor]) -> list[torch.Tensor]:
    """Orthogonalises all matrices, equal shapes as one batch, a share of each batch per process."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    by_shape: dict[torch.Size, list[int]] = {}
    for index, matrix in enumerate(matrices):
        by_shape.setdefault(matrix.shape, []).append(index)
    results = [torch.zeros_like(m) for m in matrices]
    for indices in by_shape.values():
        mine = indices[rank::world]
        if mine:
            for index, result in zip(mine, orthogonalise(torch.stack([matrices[i] for i in mine])), strict=True):
                results[index] = result
    sum_over_processes(results)
    return results


def sum_over_processes(tensors: list[torch.Tensor]) -> None:
    """Adds up the tensors of all processes, in place, in one message."""
    if not dist.is_initialized():
        return
    flat = torch.cat([t.flatten() for t in tensors])
    dist.all_reduce(flat)
    for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


def learning_rate_scale(step: int, steps: int, decay_steps: int, warmup_steps: int) -> float:
    """Factor in 0..1: linear warm-up, constant, linear decay over the last `decay_steps` of `steps`."""
    warmup = min(1.0, (step + 1) / max(1, warmup_steps))
    decay = min(1.0, max(0.0, (steps - step) / max(1, decay_steps)))
    return warmup * decay
