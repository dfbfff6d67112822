from csd_pipeline.evaluation.gpu_suite.figures import derived, is_measured, not_measured, part


def test_a_missing_figure_stays_a_sentence_in_whatever_follows_from_it():
    missing = not_measured("no time left")
    assert missing == "not measured: no time left" and not is_measured(missing) and is_measured(None)
    assert part({"a": {"b": 3}}, "a", "b") == 3 and part({"a": missing}, "a", "b") == missing
    assert derived(lambda x, y: x / y, 6, 2) == 3 and derived(lambda x, y: x / y, 6, missing) == missing
