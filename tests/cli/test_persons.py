"""Who acts at a terminal, what two persons are, and what operators are told of gateways."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from payintent.config import Settings
from payintent.domain import ids
from payintent.lifecycle.refund import refund_case
from payintent.operation.chains import AddContract
from payintent.service import open_service
from payintent.storage import outages
from tests.support.contracts import CONTRACT, RECEIVER, finalized, log_of
from tests.support.fakes import FakeGateway
from tests.support.terminal import Terminal
from tests.support.world import World, make_world

T = TypeVar("T")
_TOKEN = "PAYINTENT_OPERATOR_TOKEN"
_TAX = ("tax", "set", "TH", "0.07", "--why", "ticket 1")
Beside = Callable[[Callable[[World], Awaitable[T]]], T]


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture
def terminal(settings: Settings, patch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of an installation that is no sandbox."""
    return Terminal(settings.model_copy(update={"sandbox": False}), patch)


@pytest.fixture
def beside(settings: Settings) -> Beside[object]:
    """Do something in a world that commands find; they run in loops of their own."""

    async def opened(work: Callable[[World], Awaitable[object]]) -> object:
        gateway = FakeGateway()
        service = await open_service(settings, {"fake": gateway})
        try:
            return await work(await make_world(service, gateway))
        finally:
            await service.close()

    return lambda work: asyncio.run(opened(work))


def _issue(terminal: Terminal, name: str) -> str:
    issued = terminal.run("operator", "issue", name, "--why", "joined", "--json")
    return issued.json["token"]


def test_with_a_token_a_command_is_done_in_its_name(
    terminal: Terminal, patch: pytest.MonkeyPatch
) -> None:
    grace = _issue(terminal, "Grace")
    assert terminal.run(*_TAX).status == 0
    patch.setenv(_TOKEN, grace)
    assert terminal.run(*_TAX).status == 0
    changes = terminal.run("audit", "list", "--of", "tax.set", "--json").json
    who = {one["who"].partition(":")[0] for one in changes}
    assert (len(changes), who) == (2, {"Grace", "cli"})


def test_a_token_that_is_none_does_nothing(terminal: Terminal, patch: pytest.MonkeyPatch) -> None:
    grace, alan = _issue(terminal, "Grace"), _issue(terminal, "Alan")
    patch.setenv(_TOKEN, alan)
    revoked = terminal.run("operator", "revoke", grace.split("_")[1], "--why", "left")
    assert revoked.status == 0
    for wrong in (grace, alan[:-1] + "!", alan[:-8] + 8 * "a", "op_x"):
        patch.setenv(_TOKEN, wrong)
        for words in (_TAX, ("tax", "list")):
            said = terminal.run(*words)
            assert (said.status, said.out) == (1, "")
            assert said.err == (
                f"payintent: {_TOKEN} is no operator's token, or one that was revoked\n"
            )
    patch.delenv(_TOKEN)
    assert terminal.run("tax", "list", "--json").json == []


async def _waiting(world: World) -> str:
    """Let a refund of coins that name nobody wait, that Grace has asked for."""
    contract = AddContract(chain="native", address=CONTRACT, receiver=RECEIVER, deployed_block=1)
    await world.perform(contract)
    await finalized(world, log_of(None))
    [row] = await world.rows("SELECT id, capture_id FROM money_case")
    named = (row["id"], row["capture_id"], "Grace", f"0x{20 * '7a'}")
    async with world.service.database.transaction() as tx:
        return ids.text(ids.REFUND, (await refund_case(tx, world.service.mint, *named)).id)


def test_two_tokens_at_one_terminal_are_two_persons(
    terminal: Terminal, patch: pytest.MonkeyPatch, beside: Beside[str]
) -> None:
    waiting = beside(_waiting)
    grace, alan = _issue(terminal, "Grace"), _issue(terminal, "Alan")
    approve = ("refund", "approve", waiting, "--note", "it is his", "--why", "ticket 1")
    assert "with an operator's token of your own" in terminal.run(*approve).err
    patch.setenv(_TOKEN, grace)
    assert "another person than 'Grace'" in terminal.run(*approve).err
    patch.setenv(_TOKEN, alan)
    approved = terminal.run(*approve, "--json").json
    assert (approved["approved_by"], approved["step"]) == ("Alan", "queued")


async def _unknown_case(world: World) -> str:
    await _waiting(world)
    await finalized(world, log_of(None))
    [row] = await world.rows("SELECT id FROM money_case ORDER BY id DESC LIMIT 1")
    return ids.text(ids.CASE, row["id"])


def test_whoever_asks_for_what_another_must_approve_acts_with_a_token(
    terminal: Terminal, patch: pytest.MonkeyPatch, beside: Beside[str]
) -> None:
    case_id = beside(_unknown_case)
    resolve = ("case", "resolve", case_id, "refund", "--why", "ticket 1")
    elsewhere = (*resolve, "--destination", f"0x{20 * '7a'}")
    assert "ask for it with an operator's token" in terminal.run(*elsewhere).err
    shown = terminal.run("case", "show", case_id, "--json").json
    assert (shown["refund"], shown["note"]) == (None, "")
    patch.setenv(_TOKEN, _issue(terminal, "Grace"))
    assert terminal.run(*elsewhere, "--json").json["refund"]["step"] == "approval"


async def _down(world: World) -> None:
    assert await outages.trip(world.service.database, world.account_id, "refunds", 15, 300)


def test_accounts_that_are_down_are_listed(terminal: Terminal, beside: Beside[None]) -> None:
    assert terminal.run("provider", "health", "--json").json == []
    beside(_down)
    [down] = terminal.run("provider", "health", "--json").json
    assert (down["provider"], down["channel"], down["trips"]) == ("fake", "refunds", 1)
    assert down["since"] < down["until"]
    assert "fake" in terminal.run("provider", "health").out


def test_a_merchant_is_shown_whether_its_money_goes_back_by_itself(
    settings: Settings, patch: pytest.MonkeyPatch
) -> None:
    outside = settings.model_copy(update={"sandbox": False})
    create = ("merchant", "create", "--name", "X", "--why", "a test", "--json")
    made = [
        Terminal(where, patch).run(*create, *more).json["id"]
        for where, more in (
            (settings, ()),
            (outside, ()),
            (settings, ("--no-auto-refund",)),
            (outside, ("--auto-refund",)),
        )
    ]
    terminal = Terminal(settings, patch)

    def told(merchant_id: int) -> bool:
        return terminal.run("merchant", "show", merchant_id, "--json").json["auto_refund"]

    assert [told(one) for one in made] == [True, False, False, True]
    assert terminal.run("merchant", "profile", made[0], "--no-auto-refund").status == 0
    assert terminal.run("merchant", "profile", made[3], "--name", "Y").status == 0
    assert (told(made[0]), told(made[3])) == (False, True)
