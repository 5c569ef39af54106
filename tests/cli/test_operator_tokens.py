"""Operator tokens at a terminal, approvals by a second person, and open circuits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from payintent.chains.operations import AddContract
from payintent.core import ids
from payintent.gateway_accounts import health as gateway_outages
from payintent.refunds.create import refund_case
from payintent.runtime.settings import Settings
from payintent.service import open_service
from tests.support.contracts import CONTRACT, RECEIVER, log_of, record_final_logs
from tests.support.fakes import FakeGateway
from tests.support.terminal import Terminal
from tests.support.world import World, make_world

T = TypeVar("T")
_TOKEN = "PAYINTENT_OPERATOR_TOKEN"
_TAX = ("tax", "set", "TH", "0.07", "--why", "ticket 1")
InWorld = Callable[[Callable[[World], Awaitable[T]]], T]


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def terminal(settings: Settings, patch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of an installation outside the sandbox."""
    return Terminal(settings.model_copy(update={"sandbox": False}), patch)


@pytest.fixture
def in_world(settings: Settings) -> InWorld[object]:
    """Run a coroutine in the commands' database, in a separate event loop."""

    async def run_in_world(work: Callable[[World], Awaitable[object]]) -> object:
        gateway = FakeGateway()
        service = await open_service(settings, {"fake": gateway})
        try:
            return await work(await make_world(service, gateway))
        finally:
            await service.close()

    return lambda work: asyncio.run(run_in_world(work))


def test_a_command_is_audited_under_the_name_of_its_token(terminal: Terminal) -> None:
    _, alan = terminal.bootstrap()
    assert terminal.run(*_TAX).status == 0
    terminal.become(alan)
    assert terminal.run(*_TAX).status == 0
    changes = terminal.run("audit", "list", "--of", "tax.set", "--json").json
    assert sorted(change["who"] for change in changes) == ["Ada", "Alan"]


def test_an_invalid_token_is_rejected(terminal: Terminal) -> None:
    ada, alan = terminal.bootstrap()
    terminal.become(alan)
    revoked = terminal.run("operator", "revoke", ada.split("_")[1], "--why", "left")
    assert revoked.status == 0
    for wrong in (ada, alan[:-1] + "!", alan[:-8] + 8 * "a", "op_x"):
        terminal.become(wrong)
        for words in (_TAX, ("tax", "list")):
            result = terminal.run(*words)
            assert (result.status, result.out) == (1, "")
            assert result.err == (
                f"payintent: the token in {_TOKEN} is invalid, revoked or expired\n"
            )
    terminal.become(alan)
    assert terminal.run("tax", "list", "--json").json == []


def test_a_terminal_without_a_token_can_only_issue_the_first_two_tokens(
    terminal: Terminal,
) -> None:
    for words in (_TAX, ("tax", "list"), ("payment", "show", "pay_x"), ("webhooks", "list")):
        result = terminal.run(*words)
        assert (result.status, result.out) == (1, "")
        assert "outside the sandbox, set PAYINTENT_OPERATOR_TOKEN" in result.err
    event = ("webhooks", "show", "00000000-0000-0000-0000-000000000000")
    assert "set PAYINTENT_OPERATOR_TOKEN" in terminal.run(*event).err
    terminal.bootstrap()
    terminal.become(None)
    third = terminal.run("operator", "issue", "Eve", "--role", "admin", "--why", "a third")
    assert "can issue only the first two tokens" in third.err


def test_an_issued_token_is_shown_to_the_approver(terminal: Terminal) -> None:
    tokens = terminal.bootstrap()
    issue = ("operator", "issue", "Grace", "--role", "finance", "--days", "7", "--why", "joined")
    approved = terminal.run_approved(tokens, *issue).json
    assert (approved["approval"]["proposed_by"], approved["approval"]["decided_by"]) == (
        *("Ada", "Alan"),
    )
    terminal.become(approved["result"]["token"])
    result = terminal.run(*_TAX)
    assert result.err == "payintent: tax.set requires the admin role; Grace has the finance role\n"
    operators = {item["name"]: item for item in terminal.run("operator", "list", "--json").json}
    assert operators["Grace"]["role"] == "finance"
    assert operators["Grace"]["last_used_at"] is not None
    renewed = terminal.run("operator", "replace", "--why", "mine alone", "--json").json
    assert terminal.run("tax", "list").status == 1
    terminal.become(renewed["token"])
    assert terminal.run("tax", "list").status == 0


async def _add_pending_refund(world: World) -> str:
    """Create a refund of unassigned coins that Ada requested and that needs approval."""
    contract = AddContract(chain="native", address=CONTRACT, receiver=RECEIVER, deployed_block=1)
    await world.perform(contract)
    await record_final_logs(world, log_of(None))
    [row] = await world.rows("SELECT id, capture_id FROM money_case")
    arguments = (row["id"], row["capture_id"], "Ada", f"0x{20 * '7a'}")
    async with world.database.transaction() as tx:
        return ids.format_id(ids.REFUND, (await refund_case(tx, *arguments)).id)


def test_two_tokens_at_the_same_terminal_are_two_people(
    terminal: Terminal, in_world: InWorld[str]
) -> None:
    refund_id = in_world(_add_pending_refund)
    ada, alan = terminal.bootstrap()
    approve = ("refund", "approve", refund_id, "--note", "it is his", "--why", "ticket 1")
    terminal.become(None)
    assert "set PAYINTENT_OPERATOR_TOKEN" in terminal.run(*approve).err
    terminal.become(ada)
    assert "an operator other than 'Ada'" in terminal.run(*approve).err
    terminal.become(alan)
    approved = terminal.run(*approve, "--json").json
    assert (approved["approved_by"], approved["step"]) == ("Alan", "queued")


async def _open_circuit(world: World) -> None:
    assert await gateway_outages.open_circuit(
        world.database, world.account_id, "refunds", "no answer"
    )


def test_accounts_with_an_open_circuit_are_listed(
    terminal: Terminal, in_world: InWorld[None]
) -> None:
    terminal.bootstrap()
    assert terminal.run("provider", "health", "--json").json == []
    in_world(_open_circuit)
    [circuit] = terminal.run("provider", "health", "--json").json
    assert (circuit["provider"], circuit["channel"], circuit["trips"]) == ("fake", "refunds", 1)
    assert circuit["since"] < circuit["until"]
    assert "fake" in terminal.run("provider", "health").out


def test_merchant_show_reports_whether_refunds_are_automatic(
    settings: Settings, patch: pytest.MonkeyPatch
) -> None:
    outside = settings.model_copy(update={"sandbox": False})
    create = ("merchant", "create", "--name", "X", "--why", "a test", "--json")
    ada, _ = Terminal(outside, patch).bootstrap()

    def create_merchant(chosen_settings: Settings, *more: str) -> int:
        terminal = Terminal(chosen_settings, patch)
        terminal.become(ada)
        return terminal.run(*create, *more).json["id"]

    merchant_ids = [
        create_merchant(chosen, *more)
        for chosen, more in (
            (settings, ()),
            (outside, ()),
            (settings, ("--no-auto-refund",)),
            (outside, ("--auto-refund",)),
        )
    ]
    terminal = Terminal(settings, patch)

    def reads_auto_refund(merchant_id: int) -> bool:
        return terminal.run("merchant", "show", merchant_id, "--json").json["auto_refund"]

    assert [reads_auto_refund(item) for item in merchant_ids] == [True, True, False, True]
    assert terminal.run("merchant", "profile", merchant_ids[0], "--no-auto-refund").status == 0
    assert terminal.run("merchant", "profile", merchant_ids[3], "--name", "Y").status == 0
    assert (reads_auto_refund(merchant_ids[0]), reads_auto_refund(merchant_ids[3])) == (False, True)
