"""The gate of a cell: who may wait for it, whose place is handed on, and when it is tried again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import REGISTRY

from payintent.domain.errors import CellRestsError, LockTimeoutError, StorageUnavailableError
from payintent.slot import release_of_request
from payintent.storage.batcher import Batcher
from payintent.storage.cell_gate import AWAY_S, REST_S, SILENT_S, CellGate

_MAX = 2


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(clock: Clock) -> CellGate:
    return CellGate(_MAX, clock)


async def _wait(gate: CellGate, answer: Awaitable[None]) -> None:
    with gate.enter():
        await answer


@asynccontextmanager
async def _waiting(gate: CellGate, count: int) -> AsyncIterator[asyncio.Event]:
    """Let so many wait for an answer; the event gives it."""
    answer = asyncio.Event()
    tasks = [asyncio.create_task(_wait(gate, _until(answer))) for _ in range(count)]
    await asyncio.sleep(0)
    yield answer
    answer.set()
    await asyncio.gather(*tasks)


async def _until(event: asyncio.Event) -> None:
    await event.wait()


def _pass(gate: CellGate) -> None:
    with gate.ask():
        pass


def _lose(gate: CellGate) -> None:
    with pytest.raises(StorageUnavailableError), gate.ask():
        raise StorageUnavailableError("lost")


async def test_a_cell_is_away_since_the_first_that_got_no_answer(
    gate: CellGate, clock: Clock
) -> None:
    assert (gate.away_s, gate.has_answered) == (None, False)
    _pass(gate)
    clock.now += 10
    _lose(gate)
    clock.now += 1
    _lose(gate)
    assert (gate.away_s, gate.is_away, gate.has_answered) == (1, False, True)
    clock.now += AWAY_S
    assert (gate.away_s, gate.is_away) == (1 + AWAY_S, True)
    _pass(gate)
    assert (gate.away_s, gate.is_away) == (None, False)
    clock.now += 10
    gate.fail(clock.now, "no connection")
    assert (gate.away_s, gate.is_away) == (0, True)


async def test_a_cell_that_is_silent_is_away_since_the_first_that_waits(
    gate: CellGate, clock: Clock
) -> None:
    _pass(gate)
    clock.now += 10
    async with _waiting(gate, 1):
        assert gate.away_s is None
        clock.now += AWAY_S
        assert (gate.away_s, gate.is_away) == (AWAY_S, True)


async def test_what_is_lost_while_others_are_answered_leaves_the_cell_there(
    gate: CellGate, clock: Clock
) -> None:
    def lose() -> None:
        clock.now += 1
        gate.hear()
        raise StorageUnavailableError("lost")

    with pytest.raises(StorageUnavailableError), gate.ask():
        lose()
    assert gate.away_s is None


async def test_a_cell_that_answers_is_waited_for_by_any_number(
    gate: CellGate, clock: Clock
) -> None:
    async with _waiting(gate, 10 * _MAX):
        for _ in range(10):
            clock.now += SILENT_S / 2
            _pass(gate)


@pytest.mark.parametrize("error", [LockTimeoutError(), ValueError()])
async def test_a_silent_cell_is_waited_for_by_so_many_until_one_is_answered(
    gate: CellGate, clock: Clock, error: Exception
) -> None:
    async with _waiting(gate, _MAX - 1):
        clock.now += SILENT_S
        async with _waiting(gate, 1):
            with pytest.raises(CellRestsError), gate.enter():
                pass
            gate.hear()
            with pytest.raises(type(error)), gate.ask():
                raise error  # whatever else the database says is an answer
            clock.now += SILENT_S
            with pytest.raises(CellRestsError), gate.enter():
                pass
    _pass(gate)


async def test_what_is_counted_already_is_neither_refused_nor_counted_again(
    gate: CellGate, clock: Clock
) -> None:
    async with _waiting(gate, _MAX - 1):
        clock.now += SILENT_S
        with gate.enter(), gate.enter(), gate.enter():
            assert gate.is_inside()
    assert not gate.is_inside()


async def test_after_a_failed_connection_a_cell_rests_and_then_one_tries_for_all(
    gate: CellGate, clock: Clock
) -> None:
    async with _waiting(gate, _MAX):
        gate.fail(gate.now(), "refused")
        with pytest.raises(CellRestsError, match="refused"), gate.enter():
            pass
        clock.now += REST_S
        with pytest.raises(StorageUnavailableError, match="again"):
            await _try_in_vain(gate)
        with pytest.raises(CellRestsError), gate.enter():
            pass
        clock.now += REST_S
        _pass(gate)
        _pass(gate)


async def _try_in_vain(gate: CellGate) -> None:
    with gate.ask():
        with pytest.raises(CellRestsError):  # of another task
            await asyncio.create_task(_elsewhere(gate))
        gate.fail(gate.now(), "refused")
        raise StorageUnavailableError("refused again")


async def _elsewhere(gate: CellGate) -> None:
    other = CellGate(_MAX)
    other.let_in()  # this task has the context of the one that tries
    _pass(gate)


async def test_a_wait_for_a_turn_that_was_too_long_shuts_no_cell_that_answers_others(
    gate: CellGate, clock: Clock
) -> None:
    since = gate.now()
    clock.now += 5
    gate.hear()
    gate.fail(since, "late")
    _pass(gate)


async def test_the_places_of_those_who_wait_are_handed_on_once_the_cell_is_silent() -> None:
    gate, left, answer = CellGate(_MAX), list[int](), asyncio.Event()
    all_left = asyncio.Event()

    async def request(number: int) -> None:
        release_of_request.set(lambda: (left.append(number), all_left.set())[0])
        await _wait(gate, _until(answer))

    first = asyncio.create_task(request(1))
    await asyncio.wait_for(all_left.wait(), 30)
    second = asyncio.create_task(request(2))  # the cell is silent: at once
    await asyncio.sleep(0)
    assert left == [1, 2]
    answer.set()
    await asyncio.gather(first, second)


async def test_members_of_a_batch_are_counted_and_their_batch_is_not(
    gate: CellGate, clock: Clock
) -> None:
    answer, runs = asyncio.Event(), list[int]()

    async def together(items: list[int]) -> list[int]:
        with gate.enter():  # as the statement of the batch does
            runs.append(len(items))
            await answer.wait()
        return items

    async def alone(item: int) -> int:
        return (await together([item]))[0]

    batcher: Batcher[int, int] = Batcher(alone, together, gate=gate)  # type: ignore[arg-type]
    tasks = [asyncio.create_task(batcher.run(number)) for number in range(_MAX)]
    while sum(runs) < _MAX:
        await asyncio.sleep(0)
    clock.now += SILENT_S
    with pytest.raises(CellRestsError):
        await batcher.run(_MAX)
    answer.set()
    assert await asyncio.gather(*tasks) == [0, 1]
    await batcher.close()


async def test_what_is_turned_away_is_counted_by_cell(clock: Clock) -> None:
    gate, before = CellGate(_MAX, clock, cell=7), _turned_away()
    async with _waiting(gate, _MAX):
        clock.now += SILENT_S
        with pytest.raises(CellRestsError), gate.enter():
            pass
    gate.hear()
    _pass(gate)
    clock.now += 1
    gate.fail(gate.now(), "refused")
    with pytest.raises(CellRestsError), gate.enter():
        pass
    assert _turned_away() == before + 2


def _turned_away() -> float:
    name = "payintent_cell_turned_away_total"
    return REGISTRY.get_sample_value(name, {"cell": "7"}) or 0
