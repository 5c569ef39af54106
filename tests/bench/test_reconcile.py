"""The output of `bench.reconcile`."""

from bench.reconcile import Found, list_goals


def test_the_goals_are_a_million_lines_in_a_minute_within_100_mb() -> None:
    within = Found(1_000_000, "differs", 0, took_s=59.0, worked_s=9, database_s=9, peak_mb=99.0)
    beyond = Found(1_000_000, "differs", 0, took_s=61.0, worked_s=9, database_s=9, peak_mb=101.0)
    assert [goal.is_met for goal in list_goals(within)] == [True, True]
    assert [goal.is_met for goal in list_goals(beyond)] == [False, False]
