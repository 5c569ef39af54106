"""Metrics of several processes: sums never decrease, and gauges cover the installation."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from payintent.runtime.processes import metrics
from payintent.runtime.processes.board import Board
from tests.docs.parse_pages import ROOT


@pytest.fixture
def board() -> Iterator[Board]:
    new_board = Board.create(5)
    yield new_board
    os.close(new_board.descriptor)


def _leave(board: Board, slot: int, serial: int, registry: CollectorRegistry) -> None:
    families = metrics.to_families(registry.collect())
    board.write(slot, msgspec.msgpack.encode(metrics._ProcessMetrics(serial, families)))


def _process(answered: int, oldest_s: float, seconds: list[float]) -> CollectorRegistry:
    """The counts of a process."""
    registry = CollectorRegistry()
    Counter("answers", "Answers", ["lane"], registry=registry).labels("m").inc(answered)
    Gauge("oldest_seconds", "Age", registry=registry).set(oldest_s)
    Gauge("process_open_fds", "Files", registry=registry).set(answered)
    histogram = Histogram("took_seconds", "Time", buckets=[1, 2], registry=registry)
    for value in seconds:
        histogram.observe(value)
    return registry


def _text(board: Board) -> list[str]:
    text = generate_latest(metrics.make_merged_registry(board, lambda: None)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_counters_and_histograms_are_summed_and_the_largest_gauge_is_used(board: Board) -> None:
    _leave(board, 1, 11, _process(3, 20.0, [0.5, 1.5]))
    _leave(board, 2, 12, _process(4, 30.0, [0.5, 9.0]))
    assert _text(board) == [
        'answers_total{lane="m"} 7.0',
        "oldest_seconds 30.0",
        'process_open_fds{process="1"} 3.0',
        'process_open_fds{process="2"} 4.0',
        'took_seconds_bucket{le="1.0"} 2.0',
        'took_seconds_bucket{le="2.0"} 3.0',
        'took_seconds_bucket{le="+Inf"} 4.0',
        "took_seconds_count 4.0",
        "took_seconds_sum 11.5",
    ]


def test_a_process_can_publish_the_response_times_of_all_its_routes(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = CollectorRegistry()
    monkeypatch.setattr(metrics, "REGISTRY", registry)
    times = Histogram(
        "payintent_http_request_seconds",
        "Time",
        ["route", "method", "status"],
        buckets=list(range(13)),
        registry=registry,
    )
    for number in range(1_000):
        route, status = f"/v1/resources-{number // 5}/{{id}}", 400 + number % 5
        times.labels(route, "GET", status).observe(number / 100)
    assert metrics.publish(board, 1, 11)
    published = _text(board)
    metrics.add_ended_process(board, 1)
    assert _text(board) == published
    assert len(published) == 1_000 * 16


def test_the_counters_of_an_ended_process_are_kept_and_its_gauges_are_removed(board: Board) -> None:
    _leave(board, 1, 11, _process(3, 20.0, [0.5]))
    _leave(board, 2, 12, _process(4, 30.0, [0.5]))
    for _ in range(2):  # a repeated call has no effect
        metrics.add_ended_process(board, 2)
        assert _text(board)[:3] == [
            'answers_total{lane="m"} 7.0',
            'took_seconds_bucket{le="1.0"} 2.0',
            'took_seconds_bucket{le="2.0"} 2.0',
        ]
        assert [line for line in _text(board) if "second" in line and "took" not in line] == [
            "oldest_seconds 20.0"
        ]
        assert 'process_open_fds{process="2"} 4.0' not in _text(board)
    _leave(board, 2, 13, _process(1, 1.0, []))  # the slot's next process
    assert _text(board)[0] == 'answers_total{lane="m"} 8.0'
    metrics.add_ended_process(board, 2)
    assert _text(board)[0] == 'answers_total{lane="m"} 8.0'


def test_the_supervisors_own_metrics_do_not_change_the_sums(board: Board) -> None:
    _leave(board, 1, 11, _process(3, 20.0, []))
    metrics.add_ended_process(board, 1)
    own = CollectorRegistry()
    Gauge("processes", "Processes", registry=own).set(2)
    for _ in range(2):
        metrics.publish_supervisor(board, own.collect())
    assert [line for line in _text(board) if not line.startswith("took")] == [
        'answers_total{lane="m"} 3.0',
        "processes 2.0",
    ]


def test_every_gauge_describes_the_whole_installation() -> None:
    """A gauge of a single process would need a label or a sum. Consider this before adding it."""
    names = {
        line.strip().split('"')[1]
        for path in Path(ROOT / "payintent").rglob("*.py")
        for before, line in _pairs(path.read_text().splitlines())
        if "Gauge(" in before + line and '"payintent_' in line
    }
    assert names == {
        "payintent_case_oldest_seconds",
        "payintent_cases_open",
        "payintent_chain_auto_refund_gas_left",  # the same in every process
        "payintent_deliveries",
        "payintent_deposit_addresses",
        "payintent_deposits_unswept",
        "payintent_deposits_unswept_age_seconds",
        "payintent_sweeper_coins",
        "payintent_sweep_pending_age_seconds",
        "payintent_sweeps_waiting",
        "payintent_chain_cursor",
        "payintent_chain_final",
        "payintent_chain_halted",
        "payintent_chain_head",
        "payintent_chain_lag_seconds",
        "payintent_chain_overdue",
        "payintent_chain_waiting",
        "payintent_chain_watched",
        "payintent_ledger_imbalance_accounts",
        "payintent_mail_overdue_seconds",
        "payintent_pending_overdue_seconds",
        "payintent_processes",
        "payintent_processing_oldest_seconds",
        "payintent_reconciliation_runs",
        "payintent_webhook_overdue_seconds",
    }


def _pairs(lines: list[str]) -> list[tuple[str, str]]:
    return list(zip(["", *lines], lines, strict=False))
