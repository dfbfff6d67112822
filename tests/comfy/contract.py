"""The frozen outside of the nodes: what saved workflows rely on."""

from __future__ import annotations

from pathlib import Path

CONTRACT = Path(__file__).with_name("contract.json")


def describe(object_info: dict[str, dict]) -> dict[str, dict]:
    """Per node id: [name, type] of its inputs in order, and of its outputs. Choices of a combo count as one type."""
    nodes = {}
    for name, info in sorted(object_info.items()):
        described = {}
        for kind in ("required", "optional"):
            order = info["input_order"].get(kind, [])
            described[kind] = [[key, input_type(info["input"][kind][key])] for key in order]
        outputs = zip(info["output_name"], info["output"], strict=True)
        nodes[name] = described | {"outputs": [list(pair) for pair in outputs]}
    return nodes


def input_type(spec: list) -> str:
    return "COMBO" if isinstance(spec[0], list) else spec[0]


def differences(frozen: dict[str, dict], now: dict[str, dict]) -> list[str]:
    """One sentence per break of the contract; an appended input or output is none."""
    found = [f"{name}: the node is gone, workflows with it turn red" for name in frozen.keys() - now.keys()]
    found += [f"{name}: new and not frozen yet, run write_contract.py" for name in now.keys() - frozen.keys()]
    for name in frozen.keys() & now.keys():
        for part, before in frozen[name].items():
            after = now[name][part]
            if after[: len(before)] != before:
                found.append(f"{name}: {part} were {before}, are {after}; only appending is allowed")
    return sorted(found)
