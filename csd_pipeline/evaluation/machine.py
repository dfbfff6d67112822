"""What a benchmark ran on, and with which versions."""

from __future__ import annotations

import os
import platform

import torch


def machine_facts(device: torch.device | str) -> dict:
    """Processor, cores, memory, device and versions, ready for JSON."""
    import diffusers
    import transformers

    from csd_pipeline import __version__

    device = torch.device(device)
    facts = {
        "system": platform.system(),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "device": device.type,
        "versions": {
            "csd_pipeline": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "diffusers": diffusers.__version__,
            "python": platform.python_version(),
        },
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {"gpu": properties.name, "gpu_memory": properties.total_memory, "cuda": torch.version.cuda}
    return facts


def machine_line(facts: dict) -> str:
    """The machine in a few words."""
    where = facts.get("gpu", "no GPU used")
    return f"{facts['processor']}, {facts['cores']} cores, {where}, torch {facts['versions']['torch']}"
