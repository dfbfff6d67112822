import contextlib

import torch

from csd_pipeline.evaluation.gpu_suite.cuda_graph import CapturedCall


def test_called_aside_first_then_captured_once_then_replayed(monkeypatch):
    log = []

    class Graph:
        def replay(self):
            log.append("replay")

    class Stream:
        def __init__(self, name="side"):
            self.name = name

        def wait_stream(self, other):
            log.append(f"{self.name} waits for {other.name}")

    @contextlib.contextmanager
    def within(name):
        log.append(f"enter {name}")
        yield
        log.append(f"leave {name}")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream("main"))
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: within(stream.name))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: within("capture"))
    call = CapturedCall(lambda: log.append("call"))
    aside = ["side waits for main", "enter side", "call", "call", "call", "leave side", "main waits for side"]
    assert log == [*aside, "enter capture", "call", "leave capture"]
    log.clear()
    call()
    assert log == ["replay"]
