"""All payment features also work if payer data is sealed."""

from urllib.parse import quote

import pytest

from payintent.accounting.close_statements import close_due_days
from payintent.accounting.ledger_operations import CheckLedger
from payintent.accounting.statements_operations import ExportStatement
from payintent.core import ids
from payintent.core.access import Role
from payintent.core.errors import RefusedError
from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.members.model import MemberRole
from payintent.payments import store as payment_store
from payintent.privacy.operations import ExportPayer
from payintent.privacy.retention_store import prune_step
from payintent.privacy.seals_store import PayerDataSealer
from payintent.runtime.settings import RetentionRule, Settings
from tests.console.operator_browser import sign_in_as, words
from tests.portal.member_browser import member
from tests.portal.member_browser import words as shown
from tests.privacy.test_payer_erasure import (
    erase_with_approval,
    erasure,
    find_words,
    mark_delivered,
)
from tests.refunds.requests import create_paid
from tests.support.arrange import payment_of
from tests.support.world import Answer, Api, World

EMAIL = "Zora@Example.com"
ORDER = "A-1009"
#: Strings that must not be in any table.
WORDS = (EMAIL, EMAIL.lower(), ORDER, "Zora's book")
_DAY_S = 24 * 3600
_DETAILS = {RetentionRule.PAYER_DETAILS: 730}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"seal_payer_data": True})


async def buy(api: Api) -> Answer:
    """Create and pay a payment for Zora over HTTP."""
    metadata = {"order_id": ORDER, "title": "Zora's book"}
    created = await create_paid(api, metadata=metadata, payer_uid="zora-17", payer_email=EMAIL)
    assert await find_words(api.world, WORDS) == {}
    return created


async def close_day(world: World) -> ExportStatement:
    """Close the day; return the operation that exports its only statement."""
    await world.move_clock(_DAY_S)
    while await close_due_days(world.database):
        pass
    [row] = await world.rows("SELECT id FROM statement")
    return ExportStatement(statement_id=ids.format_id(ids.STATEMENT, row["id"]))


async def test_a_member_can_find_and_read_a_sealed_payment_in_the_portal(api: Api) -> None:
    created = await buy(api)
    await create_paid(api, metadata={"order_id": "B-1"}, payer_email="other@example.com")
    finance = await member(api, MemberRole.FINANCE)
    for text in (ORDER, EMAIL.lower(), "zora-17", created.json["id"]):
        page = (await finance.get(f"/merchant/payments?q={quote(text)}")).body.decode()
        assert page.count('href="/merchant/payments/pay_') == 1, text
        assert created.json["id"] in page
        assert ORDER in page
    page_of_payments = await finance.get("/merchant/payments")
    assert ORDER in shown(page_of_payments)
    assert "sealed:" not in shown(page_of_payments)
    story = shown(await finance.get(f"/merchant/payments/{created.json['id']}"))
    assert "Zora's book" in story
    assert "sealed:" not in story
    developer = await member(api)
    [event] = await api.world.rows(
        "SELECT id FROM event WHERE payment_id = $1", (await payment_of(api, created)).id
    )
    event_page = shown(await developer.get(f"/merchant/events/{event['id']}"))
    assert ORDER in event_page
    assert "sealed:" not in event_page


async def test_an_operator_can_find_and_read_a_sealed_payment_in_the_console(
    operator: Api, world: World
) -> None:
    metadata = f'{{"order_id":"{ORDER}","title":"Zora\'s book"}}'
    payment = await world.create(payer_email=EMAIL, metadata=metadata)
    await world.create(payer_email="other@example.com", metadata='{"order_id":"B-1"}')
    name = ids.format_id(ids.PAYMENT, payment.id)
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    for text, how in ((EMAIL.upper(), "email"), (ORDER, "order")):
        page = await visitor.get(f"/payments?text={quote(text)}")
        assert page.body.decode().count('class="id" href="/payments/pay_') == 1
        assert name in page.body.decode()
        assert how in words(page)
    story = words(await visitor.get(f"/payments/{name}"))
    assert "Zora's book" in story
    assert "sealed:" not in story
    assert ORDER in words(await visitor.get("/payments"))


@pytest.mark.parametrize("value", ["zora@example.com", "@example.com"])
async def test_an_email_rule_denies_a_sealed_payment_created_before_the_rule(
    api: Api, value: str
) -> None:
    created = await api.create(payer_email=EMAIL)
    checkout = created.json["checkout_url"].rpartition("/")[2]
    path = f"/v1/checkout/{checkout}"
    assert "fds" not in (await api.send("GET", path)).json
    await api.world.perform(AddFraudRule(kind=FraudRuleKind.EMAIL, value=value))
    assert (await api.send("GET", path)).json["fds"]["code"]
    assert (await api.create(payer_email=EMAIL)).json["fds"]["code"]
    assert "fds" not in (await api.create(payer_email="ann@shop.example")).json
    assert await find_words(api.world, (EMAIL,)) == {}


async def test_a_sealed_payer_can_be_exported_and_erased_without_changing_the_books(
    api: Api,
) -> None:
    world = api.world
    created = await buy(api)
    payment = await payment_of(api, created)
    await mark_delivered(world, payment)
    export = ExportPayer(merchant_id=world.merchant_id, payer_uid="zora-17")
    [exported] = await world.perform(export)
    assert exported.payer_email == EMAIL
    assert ORDER in bytes(exported.metadata).decode()
    assert ORDER in bytes(exported.events).decode()
    statement = await close_day(world)
    before = (await world.perform(statement)).text
    await erase_with_approval(world, erasure(world))
    with pytest.raises(RefusedError, match="no payer"):
        await world.perform(export)
    assert (await api.get(created.json["id"])).json["metadata"] == {}
    assert await find_words(world, ("zora-17", *WORDS)) == {}
    assert (await world.perform(statement)).text == before
    assert await world.perform(CheckLedger()) == []


async def test_sealed_details_are_deleted_after_two_years(api: Api) -> None:
    world = api.world
    created = await buy(api)
    payment = await payment_of(api, created)
    await mark_delivered(world, payment)
    statement = await close_day(world)
    before = (await world.perform(statement)).text
    assert created.json["id"] in before
    await world.move_clock(729 * _DAY_S)
    await prune_step(world.database, _DETAILS, 10)
    snapshot = await payment_store.get(world.database, payment.id)
    assert snapshot is not None
    assert snapshot.payment.payer_email == EMAIL
    await world.move_clock(731 * _DAY_S)
    await prune_step(world.database, _DETAILS, 10)
    sealer = PayerDataSealer(world.database, -60.0)
    while await sealer.step():
        pass
    later_snapshot = await payment_store.get(world.database, payment.id)
    assert later_snapshot is not None
    assert (later_snapshot.payment.payer_email, later_snapshot.payment.metadata) == (None, "{}")
    assert (await api.get(created.json["id"])).json["metadata"] == {}
    finance = await member(api, MemberRole.FINANCE)
    for text in (ORDER, EMAIL):
        page = (await finance.get(f"/merchant/payments?q={quote(text)}")).body.decode()
        assert created.json["id"] not in page
    assert (await world.perform(statement)).text == before
    assert await world.perform(CheckLedger()) == []
