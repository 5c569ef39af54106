"""A command that waits for its database says so, and other commands are silent."""

import asyncio

import pytest

from payintent.cli.common import report_unavailable_database
from payintent.core.errors import StorageUnavailableError
from payintent.db import availability
from payintent.db.availability import wait_for_database


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "NOTICE_AFTER_S", 0.0)


async def test_what_is_waited_for_is_said_once_before_it_is_given_up() -> None:
    said: list[str] = []

    async def silent() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StorageUnavailableError, match="it did not respond in time"):
        await wait_for_database(silent, 0.05, lambda: said.append("waiting"))
    assert said == ["waiting"]


async def test_what_an_earlier_try_found_is_said_though_the_last_one_was_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(availability, "_RETRY_S", 0.0)
    tries: list[str] = []

    async def refused_then_silent() -> None:
        tries.append("try")
        if len(tries) == 1:
            raise StorageUnavailableError("connection refused")
        await asyncio.Event().wait()

    with pytest.raises(StorageUnavailableError, match="connection refused"):
        await wait_for_database(refused_then_silent, 0.5)
    assert len(tries) == 2


async def test_nothing_is_said_of_a_database_that_answers() -> None:
    said: list[str] = []

    async def answers() -> None:
        pass

    await wait_for_database(answers, 1.0, lambda: said.append("waiting"))
    await asyncio.sleep(0)  # what was due would be called now
    assert said == []


def test_a_person_reads_which_database_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    report_unavailable_database("postgresql://payintent:secret@db.example:5433/payintent")
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        "payintent: waiting for the database at db.example:5433 …\n",
    )
