"""The checks of the drills count every injected error."""

import math

from drills.ha.report import Run, markdown
from drills.judge import StoredPayment, judge
from drills.load import CANCEL, CREATE, GET, Call, failures
from drills.observe import outage_s, percentile, settled_s


def call(
    kind: str, payment_id: str = "", key: str = "", outcome: str = "ok", **when: float
) -> Call:
    due, seconds = when.get("due", 0.0), when.get("seconds", 0.01)
    return Call(
        kind=kind, due=due, seconds=seconds, outcome=outcome, key=key, payment_id=payment_id
    )


#: Two payments without errors, one of them cancelled.
CALLS = [call(CREATE, "pi_1", "k1"), call(CREATE, "pi_2", "k2"), call(CANCEL, "pi_2")]
STORED = [StoredPayment("pi_1", "k1", "PENDING"), StoredPayment("pi_2", "k2", "CANCELLED")]


def test_a_correct_run_has_no_findings() -> None:
    assert judge(CALLS, STORED, ["pi_2"], ["pi_2"]).is_clean


def test_an_acknowledged_payment_that_is_not_stored_is_lost() -> None:
    verdict = judge(CALLS, STORED[1:], ["pi_2"], ["pi_2"])
    assert (verdict.lost, verdict.doubled, verdict.missing) == ({"pi_1"}, set(), set())


def test_an_acknowledged_cancellation_that_is_not_stored_is_lost() -> None:
    back = [STORED[0], StoredPayment("pi_2", "k2", "PENDING")]
    verdict = judge(CALLS, back, ["pi_2"], ["pi_2"])
    assert verdict.lost == {"pi_2"}


def test_two_payments_with_the_same_key_are_a_duplicate() -> None:
    twice = [*STORED, StoredPayment("pi_3", "k1", "PENDING")]
    verdict = judge(CALLS, twice, ["pi_2"], ["pi_2"])
    assert (verdict.lost, verdict.doubled, verdict.missing) == (set(), {"k1"}, set())


def test_two_responses_to_the_same_key_with_different_payments_are_a_duplicate() -> None:
    twice = [*CALLS, call(CREATE, "pi_2", "k1")]
    assert judge(twice, STORED, ["pi_2"], ["pi_2"]).doubled == {"k1"}


def test_two_events_of_the_same_payment_are_a_duplicate() -> None:
    assert judge(CALLS, STORED, ["pi_2", "pi_2"], ["pi_2"]).doubled == {"pi_2"}


def test_an_event_that_is_not_stored_or_not_delivered_is_missing() -> None:
    for events, delivered in (([], ["pi_2"]), (["pi_2"], [])):
        verdict = judge(CALLS, STORED, events, delivered)
        assert (verdict.lost, verdict.doubled, verdict.missing) == (set(), set(), {"pi_2"})


def test_a_cancellation_without_a_response_needs_an_event_if_it_took_effect() -> None:
    silent = [*CALLS[:2], call(CANCEL, "pi_2", outcome="no response in time")]
    assert judge(silent, STORED, [], []).missing == {"pi_2"}
    undone = [STORED[0], StoredPayment("pi_2", "k2", "PENDING")]
    assert judge(silent, undone, [], []).is_clean


def test_a_create_without_a_response_may_be_stored_at_most_once() -> None:
    silent = [*CALLS, call(CREATE, "", "k3", "reset")]
    once = StoredPayment("pi_3", "k3", "PENDING")
    again = StoredPayment("pi_4", "k3", "PENDING")
    for stored, doubled in (
        (STORED, set()),
        ([*STORED, once], set()),
        ([*STORED, once, again], {"k3"}),
    ):
        verdict = judge(silent, stored, ["pi_2"], ["pi_2"])
        assert (verdict.lost, verdict.doubled) == (set(), doubled)


def _every_second(outcome: str, start: int, end: int) -> list[Call]:
    return [
        call(kind, "pi_1", f"k{second}", outcome, due=float(second), seconds=0.1)
        for second in range(start, end)
        for kind in (CREATE, GET)
    ]


def test_the_outage_is_the_longest_time_without_an_accepted_create() -> None:
    calls = _every_second("ok", 0, 10) + _every_second("503", 10, 17) + _every_second("ok", 17, 40)
    assert math.isclose(
        outage_s(calls, 9.5), 8.0
    )  # from the response at 9.1 s to the response at 17.1 s
    reads = [item for item in calls if item.kind == GET]
    assert outage_s(reads, 9.5) == 29.5  # no create was accepted at all
    assert outage_s(_every_second("ok", 0, 10) + _every_second("503", 10, 31), 9.5) > 20


def test_responses_are_fast_again_once_every_later_period_of_five_seconds_is_fast() -> None:
    bad = _every_second("503", 10, 17)
    calls = _every_second("ok", 0, 10) + bad + _every_second("ok", 17, 40)
    assert settled_s(calls, 10.0) == 7.0
    late = call(GET, "pi_1", due=20.0, seconds=0.3)
    assert settled_s([*calls, late], 10.0) == 11.0
    assert settled_s(_every_second("ok", 0, 40), 10.0) == 0.0
    assert settled_s(calls + _every_second("503", 40, 44), 10.0) == math.inf


def test_a_percentile_is_a_measured_value() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(number) for number in range(1, 101)], 0.99) == 99.0
    assert percentile([], 0.99) == 0.0


def test_failures_are_counted_by_kind_and_outcome() -> None:
    calls = [*_every_second("503", 0, 2), call(CREATE, outcome="reset"), call(GET)]
    assert failures(calls) == {"create: 503": 2, "get: 503": 2, "create: reset": 1}


def test_the_table_shows_medians_and_sums_of_errors() -> None:
    runs = [
        Run(
            fault="freeze",
            title="frozen",
            acknowledged=100,
            outage_s=outage,
            settled_s=outage + 1,
            errors=failures([call(CREATE, outcome="503")] * number),
            lost=number,
            doubled=0,
            missing=0,
        )
        for number, outage in ((1, 20.0), (2, 30.0), (3, 25.0))
    ]
    assert list(markdown(runs)) == ["| frozen | 3 | 25.0 s | 30.0 s | 26.0 s | 2 | 6 | 0 | 0 |"]
