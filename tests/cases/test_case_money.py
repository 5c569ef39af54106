"""A case shows the expected and received amounts in human-readable form."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from payintent.cases.list_store import CaseDetails
from payintent.cases.operations import ShowCase
from payintent.core import ids
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import bill, contract_service, log_of, offer_tokens, record_final_logs
from tests.support.fakes import FakeGateway, captured
from tests.support.terminal import Terminal
from tests.support.world import World

_STRANGE = bytes([9] * 20)


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def shown(world: World) -> CaseDetails:
    [row] = await world.rows("SELECT id FROM money_case")
    return await world.perform(ShowCase(case_id=ids.format_id(ids.CASE, row["id"])))


@pytest.mark.parametrize(
    ("minor", "currency", "text"),
    [(100_050, "THB", "1000.50 THB"), (159_000, "JPY", "159000 JPY"), (1, "KWD", "0.001 KWD")],
)
async def test_gateway_amounts_have_the_decimals_of_their_currency(
    world: World, minor: int, currency: str, text: str
) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(minor, currency))
    case = await shown(world)
    assert (case.kind, case.amount_minor) == ("AMOUNT_MISMATCH", str(minor))
    assert case.expected is not None
    assert case.received is not None
    assert (case.expected.text, case.received.text) == ("1590.00 THB", text)


async def test_chain_amounts_name_their_token_and_chain(world: World) -> None:
    methods = await offer_tokens(world)
    _, session = await bill(world, methods["NATIVED"])
    total = session.quote.price.total_amount
    await record_final_logs(world, log_of(session, amount=session.quote.total_minor + 10**17))
    case = await shown(world)
    assert case.expected is not None
    assert case.received is not None
    assert case.expected.text == f"{total} NATIVED on native"
    assert case.received.text.endswith(" NATIVED on native")
    assert float(case.received.amount or 0) == pytest.approx(float(total) + 0.1)


async def test_amounts_of_an_unsupported_token_are_in_its_smallest_unit(world: World) -> None:
    methods = await offer_tokens(world)
    _, session = await bill(world, methods["NATIVED"])
    await record_final_logs(world, log_of(session, token=_STRANGE, amount=7))
    case = await shown(world)
    assert case.received is not None
    assert case.received.text == f"7 smallest units of 0x{_STRANGE.hex()} on native"


async def test_a_case_without_a_received_amount_shows_only_the_expected_amount(
    world: World,
) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.rows(
        "INSERT INTO money_case (id, kind, merchant_id, payment_id, session_id, opened_at) "
        "VALUES ($1, 'UNDECIDED', $2, $3, $4, clock())",
        world.id_generator.new_id(),
        world.merchant_id,
        payment.id,
        session.id,
    )
    case = await shown(world)
    assert case.expected is not None
    assert (case.expected.text, case.received) == ("1590.00 THB", None)


@pytest.fixture
def terminal(settings: Settings) -> Iterator[Terminal]:
    with pytest.MonkeyPatch.context() as patch:
        yield Terminal(settings, patch)


async def test_a_terminal_shows_both_amounts_side_by_side(world: World, terminal: Terminal) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(100_050))
    case = await shown(world)
    result = await asyncio.to_thread(terminal.run, "case", "show", case.id)
    lines = result.out.splitlines()
    assert [line.split(maxsplit=1) for line in lines[1:5]] == [
        ["kind", "AMOUNT_MISMATCH"],
        ["status", "OPEN"],
        ["expected", "1590.00 THB"],
        ["received", "1000.50 THB"],
    ]
