from csd_pipeline.evaluation.gpu_suite import image_memory
from csd_pipeline.evaluation.gpu_suite.methods import methods


def test_session_and_image_are_within_the_block(tiny, monkeypatch):
    log = []

    class Block:
        bytes = 7

        def __init__(self, device):
            assert device == tiny.device

        def __enter__(self):
            log.append("begin")
            return self

        def __exit__(self, *_):
            log.append("end")

    monkeypatch.setattr(image_memory, "PeakMemory", Block)
    monkeypatch.setattr(tiny.adapter, "open", lambda *a, open=tiny.adapter.open: log.append("open") or open(*a))
    assert image_memory.peak_bytes(tiny, methods()["csd"]) == 7 and log == ["begin", "open", "end"]
