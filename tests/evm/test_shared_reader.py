"""What a chain's watchers share is kept for each other alone, and not for long."""

from payintent.evm.shared_reader import ANSWERS_MAX, FRESH_S, _Memory
from tests.evm.net import Clock


async def _ask(memory: _Memory[str], key: object, watcher: int, answer: str) -> str:
    async def node() -> str:
        return answer

    return await memory.ask((key,), watcher, node)


async def test_two_watchers_have_one_answer_each_once() -> None:
    memory = _Memory[str](Clock())
    assert await _ask(memory, "head", 0, "first") == "first"
    assert await _ask(memory, "head", 1, "second") == "first"
    assert await _ask(memory, "head", 1, "second") == "second"


async def test_with_one_cell_nothing_is_kept() -> None:
    memory = _Memory[str](Clock(), keeps=False)
    await _ask(memory, "head", 0, "first")
    assert len(memory._kept) == 0


async def test_what_nobody_may_have_any_more_takes_no_memory() -> None:
    clock = Clock()
    memory = _Memory[str](clock)
    for number in range(ANSWERS_MAX + 10):
        await _ask(memory, number, 0, "logs")
    assert len(memory._kept) == ANSWERS_MAX
    clock.now_s += FRESH_S + 1
    await _ask(memory, "new", 0, "logs")
    assert len(memory._kept) == 1
    memory.keep(("slow",), 0, "asked for long ago", clock.now_s - FRESH_S - 1)
    clock.now_s += FRESH_S + 1
    memory.keep(("slower",), 0, "asked for long ago", clock.now_s - FRESH_S - 1)
    assert len(memory._kept) == 0
