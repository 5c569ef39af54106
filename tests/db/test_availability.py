"""A command prints a notice if it has to wait for its database."""

import asyncio

import pytest

from payintent.cli.common import report_unavailable_database
from payintent.core.errors import StorageUnavailableError
from payintent.db import availability
from payintent.db.availability import wait_for_database


@pytest.fixture(autouse=True)
def report_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "NOTICE_AFTER_S", 0.0)


async def test_waiting_is_reported_once_before_the_timeout() -> None:
    messages: list[str] = []

    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StorageUnavailableError, match="it did not respond in time"):
        await wait_for_database(hang, 0.05, lambda: messages.append("waiting"))
    assert messages == ["waiting"]


async def test_the_error_of_an_earlier_attempt_is_reported_if_the_last_attempt_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(availability, "_RETRY_S", 0.0)
    tries: list[str] = []

    async def refuse_then_hang() -> None:
        tries.append("try")
        if len(tries) == 1:
            raise StorageUnavailableError("connection refused")
        await asyncio.Event().wait()

    with pytest.raises(StorageUnavailableError, match="connection refused"):
        await wait_for_database(refuse_then_hang, 0.5)
    assert len(tries) == 2


async def test_nothing_is_reported_if_the_database_responds() -> None:
    messages: list[str] = []

    async def respond() -> None:
        pass

    await wait_for_database(respond, 1.0, lambda: messages.append("waiting"))
    await asyncio.sleep(0)  # a pending notice would be sent now
    assert messages == []


def test_a_command_names_the_unavailable_database_without_its_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report_unavailable_database("postgresql://payintent:secret@db.example:5433/payintent")
    output = capsys.readouterr()
    assert (output.out, output.err) == (
        "",
        "payintent: waiting for the database at db.example:5433 …\n",
    )
