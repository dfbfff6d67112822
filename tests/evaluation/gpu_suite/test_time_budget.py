from csd_pipeline.evaluation.gpu_suite.time_budget import TimeBudget


def test_what_took_long_before_is_expected_to_again():
    now = [100.0]
    budget = TimeBudget(50, lambda: now[0])
    assert budget.fits("compile", 30) and not budget.fits("compile", 51)
    now[0] = 115.0
    budget.note("compile", 28)
    budget.note("short", 20)
    assert budget.spent == 15 and budget.fits("other", 35) and budget.fits("short", 10)
    assert not budget.fits("compile", 30)
    budget.note("compile", 1)
    assert not budget.fits("compile", 30)
