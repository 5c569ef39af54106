"""Shared memory: no partial writes are read, and no process waits for another."""

import os
import signal
from collections.abc import Iterator

import pytest

from payintent.runtime.processes.board import ABSENT, BYTES_MAX, Board, ConnectionShare
from payintent.runtime.processes.supervisor import Plan, limit_plan


@pytest.fixture
def board() -> Iterator[Board]:
    new_board = Board.create(4)
    yield new_board
    os.close(new_board.descriptor)


def test_a_slot_contains_the_last_write(board: Board) -> None:
    assert board.read(1) == b""
    for content in (b"first", b"second, longer", b"third"):
        assert board.write(1, content)
        assert board.read(1) == content
    assert board.read(2) == b""


def test_a_process_that_dies_during_a_write_leaves_the_previous_content(board: Board) -> None:
    board.write(1, b"whole")
    board.write(1, b"whole again")
    memory = board._memory
    at = board._compute_offset(1, 1)  # the third write replaces the first
    memory[at : at + 24] = os.urandom(24)
    assert board.read(1) == b"whole again"
    board.write(1, b"third")
    assert board.read(1) == b"third"


def test_oversized_content_is_not_written(board: Board) -> None:
    board.write(1, b"before")
    assert not board.write(1, bytes(BYTES_MAX + 1))
    assert board.read(1) == b"before"
    assert board.write(1, bytes(BYTES_MAX))


def test_a_reopened_board_has_the_same_content(board: Board) -> None:
    board.write(3, b"kept")
    board.set_connections(3, 7)
    again = Board(board.descriptor, 4)
    assert again.read(3) == b"kept"
    assert again.connections() == (ABSENT, ABSENT, ABSENT, 7)


def test_only_a_process_with_more_connections_than_another_is_above_the_minimum(
    board: Board,
) -> None:
    first, second = ConnectionShare(board, 1), ConnectionShare(board, 2)
    assert not first.is_above_minimum(100), "there is no other"
    second.publish(3)
    assert [first.is_above_minimum(count) for count in (0, 3, 4, 5)] == [False, False, False, True]
    second.withdraw()
    assert not first.is_above_minimum(100)


@pytest.mark.parametrize("began", [1, 2, 4])
def test_an_inherited_board_limits_the_processes_on_a_host_with_more_cores(
    began: int,
) -> None:
    """Each process has a slot, and there is a spare slot for a replacing process."""
    slots = 2 * began + 2
    for count in range(1, 20):
        plan = limit_plan(Plan(count, {}, signal.SIGTERM), slots)
        assert plan.count == min(count, 2 * began)
        numbers = range(1, slots)
        assert len(numbers) > plan.count
