"""`payintent cell-move` takes its addresses from the environment, and shows none of them."""

import pytest

from payintent.cli.cell_move import NEW_ENV, OLD_ENV
from payintent.config import Settings
from payintent.storage.cell_move import CellMove
from tests.support.terminal import Terminal


def test_addresses_are_asked_for_and_not_shown(
    settings: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(settings, monkeypatch)
    monkeypatch.setenv(OLD_ENV, database_url)
    lacking = terminal.run("cell-move", "status", "1")
    monkeypatch.setenv(NEW_ENV, "postgresql://admin:secret-word@127.0.0.1:1/payintent")
    away = terminal.run("cell-move", "status", "1")
    monkeypatch.setenv(NEW_ENV, database_url)
    none = terminal.run("cell-move", "status", "1")
    assert (
        lacking.err == f"payintent: {NEW_ENV} must be in the environment: superusers' addresses\n"
    )
    assert (
        away.err
        == "payintent: the new server: the database cannot be reached: connection refused\n"
    )
    assert none.err == "payintent: no move of cell 1 is under way\n"
    assert [said.status for said in (lacking, away, none)] == [1, 1, 1]


async def test_an_address_for_postgresql_has_the_password_as_it_reads_it() -> None:
    class Side:
        server = ""

    move = CellMove(1, Side(), Side())  # type: ignore[arg-type]
    Side.server = "postgresql://admin:100%zz:c@127.0.0.1:1/payintent?search_path=cell_1"
    assert move._address() == "postgresql://admin:100%25zz%3Ac@127.0.0.1:1/payintent"
    Side.server = "postgresql://admin:p%40ss@127.0.0.1:1/payintent"
    assert move._address() == Side.server


def test_an_address_that_is_none_is_not_quoted(
    settings: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(settings, monkeypatch)
    monkeypatch.setenv(OLD_ENV, "postgresql://admin:se\u2100cret@127.0.0.1:1/payintent")
    monkeypatch.setenv(NEW_ENV, database_url)
    assert terminal.run("cell-move", "status", "1").err == (
        "payintent: the old server: the database refuses the connection: its URL cannot be read\n"
    )


def test_nothing_is_finished_that_was_not_begun_or_without_commands_for_poolers(
    settings: Settings, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(settings, monkeypatch)
    monkeypatch.setenv(OLD_ENV, database_url)
    monkeypatch.setenv(NEW_ENV, database_url)
    words = ("--pause", "true", "--switch", "true", "--resume", "true", "--why", "larger")
    assert "no move of cell 1" in terminal.run("cell-move", "finish", "1", *words).err
    assert "is empty" in terminal.run("cell-move", "finish", "1", "--pause", "", *words[2:]).err
