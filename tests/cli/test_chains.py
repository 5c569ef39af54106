"""The output of commands for chains, cases and on-chain payments."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from payintent.core import ids
from payintent.payments.model import Payment, Session
from payintent.runtime.settings import Settings
from tests.support.contracts import (
    bill,
    contract_service,
    log_of,
    offer_deposits,
    offer_tokens,
    record_deposit,
    record_final_logs,
)
from tests.support.fakes import FakeGateway
from tests.support.terminal import Terminal
from tests.support.world import make_world

_ADDRESS = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"


@pytest.fixture
def terminal(settings: Settings) -> Iterator[Terminal]:
    with pytest.MonkeyPatch.context() as patch:
        yield Terminal(settings, patch)


@pytest.fixture
def paid(settings: Settings) -> tuple[Payment, Session]:
    """An on-chain payment that was paid twice, and unassigned money."""

    async def pay() -> tuple[Payment, Session]:
        gateway = FakeGateway()
        async with contract_service(settings, gateway) as service:
            world = await make_world(service, gateway)
            payment, session = await bill(world, (await offer_tokens(world))["NATIVED"])
            await record_final_logs(
                world, log_of(session), log_of(session, block_number=8), log_of(None)
            )
            return payment, session

    return asyncio.run(pay())


def test_chain_list_prints_chains_contracts_and_tokens_as_tables(
    terminal: Terminal, paid: Any
) -> None:
    output = terminal.run("chain", "list").out
    assert [item.split()[0] for item in output.split("\n\n")] == ["slug", "account", "chain"]
    assert _ADDRESS in output
    assert len(terminal.run("chain", "list", "--json").json) == 3
    for columns in (80, 120):
        for words in (("chain", "list"), ("case", "list")):
            table = terminal.run(*words, columns=columns).out
            assert max(map(len, table.splitlines())) <= columns, words


def test_chain_set_prints_the_chain_settings_without_tokens(terminal: Terminal) -> None:
    words = ("chain", "set", "native", "--finality", "confirmations", "--confirmations", "12")
    result = terminal.run(
        *words, "--public-rpc-url", "http://a.test", "--public-rpc-url", "http://b"
    )
    lines = dict(line.split(maxsplit=1) for line in result.out.splitlines() if " " in line.strip())
    assert (lines["finality"], lines["confirmations"]) == ("confirmations", "12")
    assert "http://a.test, http://b" in result.out
    assert "NATIVED" not in result.out
    settings = terminal.run(*words, "--public-rpc-url", "", "--json").json
    assert (settings["public_rpc_urls"], len(settings["tokens"])) == ([], 2)


def test_payment_show_includes_sessions_receipts_and_cases(
    terminal: Terminal, paid: tuple[Payment, Session]
) -> None:
    payment, session = paid
    words = ("payment", "show", ids.format_id(ids.PAYMENT, payment.id))
    text, as_json = terminal.run(*words).out, terminal.run(*words, "--json").json
    for item in (ids.format_id(ids.SESSION, session.id), "credited", "duplicate", "DOUBLE_PAYMENT"):
        assert item in text
    assert [len(as_json[part]) for part in ("sessions", "receipts", "cases")] == [1, 2, 1]
    assert payment.checkout_id not in text + str(as_json)


def test_deposits_are_shown_with_their_payment_and_their_chain(
    terminal: Terminal, settings: Settings
) -> None:
    async def pay() -> Payment:
        gateway = FakeGateway()
        async with contract_service(settings, gateway) as service:
            world = await make_world(service, gateway)
            payment, session = await bill(world, await offer_deposits(world))
            await record_deposit(world, session.id, 10**18)
            return payment

    payment_id = ids.format_id(ids.PAYMENT, asyncio.run(pay()).id)
    words = ("payment", "show", payment_id)
    text = terminal.run(*words, columns=200).out
    [deposit] = terminal.run(*words, "--json").json["deposits"]
    [transfer] = deposit["transfers"]
    assert (deposit["received"], deposit["remaining"]) == ("1", "24.5")
    for expected in (deposit["address"], transfer["tx_hash"], "24.5", "unswept"):
        assert expected in text
    chains = terminal.run("chain", "list", columns=200).out
    assert deposit["factory"][-10:] in chains  # the table wraps long addresses
    assert ["native", "USDT", "1", "1"] in [line.split()[:4] for line in chains.splitlines()]


def test_the_reason_is_the_default_note_of_a_resolved_case(terminal: Terminal, paid: Any) -> None:
    [case_id] = [
        item["id"]
        for item in terminal.run("case", "list", "--json").json
        if item["kind"] == "UNKNOWN_REFERENCE"
    ]
    closed = terminal.run("case", "resolve", case_id, "dismiss", "--why", "a test", "--json").json
    assert (closed["status"], closed["note"]) == ("DISMISSED", "a test")
    again = terminal.run("case", "resolve", case_id, "accept", "--note", "mine")
    assert (again.status, again.err) == (1, "payintent: the case is already DISMISSED\n")
    cases = terminal.run("case", "list", "--status", "DISMISSED", "--json").json
    assert [item["id"] for item in cases] == [case_id]


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        ("chain set tron", 1, "no chain 'tron'"),
        ("chain set native --finality soon", 2, "'soon' is not one of 'finalized', 'confirm"),
        ("chain set-token native DAI", 1, "no token 'DAI' on native; use one of NATIVED, USDT"),
        (f"chain add-contract bsc {_ADDRESS.lower()}", 2, "Missing option '--receiver'"),
        ("chain retire-contract 7", 1, "no contract uses account 7"),
        ("chain resume bsc", 1, "no contract is registered on bsc"),
        ("case show case_x", 1, "no case 'case_x'"),
        ("case list --status LOST", 2, "'LOST' is not one of 'OPEN', 'ACCEPTED'"),
        ("case list --merchant 9", 1, "no merchant 9"),
        ("case resolve case_x keep", 2, "'keep' is not one of 'accept', 'dismiss'"),
        ("case resolve case_x accept", 1, "note must have 1 to 500 characters"),
    ],
)
def test_an_error_is_a_single_line(terminal: Terminal, words: str, status: int, line: str) -> None:
    result = terminal.run(*words.split())
    assert (result.status, result.out) == (status, "")
    assert line in result.err
    assert result.err.count("\n") == 1
