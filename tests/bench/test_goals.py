"""The benchmark's results are shown with their goals, and missed goals are marked."""

from io import StringIO

from rich.console import Console

from bench.goals import Goal, show, write_page

GOALS = [
    Goal("creates", 0.61, 0.6, " of pgbench"),
    Goal("reads", 0.2, 0.35, " of pgbench"),
    Goal("events <delivered>", 2_000, 2_000, "/s"),
    Goal("expiries", 999.6, 1_000, "/s"),
    Goal("slowest", 1_000, 1_000, " ms", is_ceiling=True),
    Goal("slow", 4_000, 1_000, " ms", is_ceiling=True),
]


def test_a_goal_is_met_if_the_figure_reaches_it() -> None:
    assert [goal.is_met for goal in GOALS] == [True, False, True, False, True, False]


def test_the_table_marks_missed_goals() -> None:
    console = Console(file=StringIO(), width=100, record=True)
    show(GOALS, console)
    lines = [
        line
        for line in console.export_text().splitlines()
        if any(unit in line for unit in ("pgbench", "/s", " ms"))
    ]
    assert ["missed" in line for line in lines] == [False, True, False, True, False, True]
    assert "0.61 of pgbench" in lines[0]
    assert "0.60 of pgbench" in lines[0]
    assert "2,000/s" in lines[2]


def test_the_page_shows_the_share_of_each_goal_and_escapes_text() -> None:
    page = write_page(GOALS, "a < b")
    assert page.count('class="missed"') == 3
    assert "width:105px" in page  # four times slower than allowed
    assert "width:420px" in page
    assert "width:240px" in page  # 0.2 of 0.35
    assert "events &lt;delivered&gt;" in page
    assert "a &lt; b" in page
