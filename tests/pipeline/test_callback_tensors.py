"""What a callback can ask for beside the token ids: committed tokens and drift of every image."""

import pytest

from csd_pipeline import CSDAutoregressivePipeline


@pytest.fixture(scope="module")
def embedded():
    pipeline = CSDAutoregressivePipeline.from_pretrained("embedded")
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def recorded(pipeline, preset):
    seen = []

    def callback(pipe, step, timestep, tensors):
        assert sorted(tensors) == ["counts", "drift"]
        seen.append((timestep, tensors["counts"].tolist(), tensors["drift"].tolist()))

    wanted = {"callback_on_step_end": callback, "callback_on_step_end_tensor_inputs": ["counts", "drift"]}
    result = pipeline("ghost at sunset", num_images_per_prompt=2, seed=1, preset=preset, output_type="latent", **wanted)
    return seen, result.traces


def test_counts_and_drift_end_where_the_traces_do(embedded):
    seen, traces = recorded(embedded, "fast")
    assert all(min(counts) == timestep for timestep, counts, _ in seen)
    for (_, before, spent), (_, after, more) in zip(seen, seen[1:], strict=False):
        assert all(a <= b for a, b in zip(before, after, strict=True))
        assert all(a <= b + 1e-6 for a, b in zip(spent, more, strict=True))
    _, counts, drift = seen[-1]
    assert counts == [trace.tokens for trace in traces] == [256, 256]
    assert drift == pytest.approx([trace.drift for trace in traces], rel=1e-4) and min(drift) > 0


def test_an_exact_run_spends_no_drift(embedded):
    seen, _ = recorded(embedded, "exact")
    assert {value for _, _, drift in seen for value in drift} == {0.0}


def test_asking_for_drift_reads_nothing_from_the_device():
    from csd_pipeline.decoding import Progress
    from csd_pipeline.decoding.trace import TraceRecorder

    progress = Progress(1, [2], lambda: None, TraceRecorder([0], 4, "meta", maps=False))
    assert progress.drift.device.type == "meta" and progress.drift.shape == (1,)
