"""The first page: the endpoint's health, pending work, and the latest payments."""

import re
from datetime import UTC, datetime

import pytest

from payintent.members.model import MemberRole
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.operations import SetCallbackUrl
from payintent.portal.overview import describe_failure, hide_url_secrets
from payintent.webhooks.endpoints_store import RecentAttempt
from payintent.webhooks.model import AttemptOutcome
from tests.portal.member_browser import Person, member, words
from tests.refunds.requests import create_paid
from tests.refunds.requests import post_refund as refund
from tests.support.arrange import payment_of
from tests.support.fakes import captured
from tests.support.world import Api
from tests.webhooks.test_endpoint_health import give_endpoint, pay, record_attempt

pytestmark = pytest.mark.full


async def _overview(person: Person) -> str:
    answer = await person.get("/merchant/overview")
    assert answer.status == 200
    return words(answer)


async def test_the_portal_opens_with_the_overview(api: Api) -> None:
    person = await member(api)
    answer = await person.get("/merchant")
    assert (answer.status, answer.headers["Location"]) == (303, "/merchant/overview")
    page = (await person.get("/merchant/overview")).body.decode()
    assert '<a href="/merchant/overview" aria-current="page">' in page
    assert 'action="/merchant/payments"' in page  # the search form


async def test_the_overview_shows_the_callback_url_and_its_health(api: Api) -> None:
    person, world = await member(api), api.world
    await world.rows("UPDATE merchant SET callback_url = NULL WHERE id = $1", world.merchant_id)
    assert "not configured" in await _overview(person)
    operation = SetCallbackUrl(
        merchant_id=world.merchant_id,
        callback_url="https://93.184.216.34:8443/hook?token=secret-of-ours",
    )
    await world.perform(operation)
    await pay(world)
    page = await _overview(person)
    assert "https://93.184.216.34:8443/hook?… " in page
    assert "secret-of-ours" not in page
    assert "Pending 1 event Next attempt (UTC) now" in page
    await record_attempt(world, delivered=False)
    page = await _overview(person)
    assert "Webhooks failing" in page
    assert "Last success (UTC) none yet" in page
    assert re.search(r"Failing since \(UTC\) 20\d\d-", page)
    assert "your server did not respond in time" in page
    assert re.search(r"Next attempt \(UTC\) 20\d\d-", page)
    await record_attempt(world, delivered=True)
    page = await _overview(person)
    assert "Webhooks working" in page
    assert "Failing since" not in page
    assert "Pending none" in page


async def test_the_overview_links_to_items_that_need_attention(api: Api) -> None:
    person, world = await member(api, MemberRole.FINANCE), api.world
    assert "Needs attention" not in await _overview(person)
    await give_endpoint(world)
    created = await create_paid(api)
    payment = await payment_of(api, created)
    snapshot = await world.read(payment)
    assert snapshot.session is not None
    await world.report(payment, snapshot.session.id, captured(1, reference="second"))
    await refund(api, created, amount="1.00")
    await world.rows(
        "UPDATE refund SET status = 'FAILED', step = 'ended', failure_reason = 'DECLINED'"
    )
    await record_attempt(world, delivered=False, wait_s=None)
    page = await _overview(person)
    assert "1 event not delivered, and no longer retried" in page
    assert "1 case open" in page
    assert "1 refund failed in the last 7 days" in page
    body = (await person.get("/merchant/overview")).body.decode()
    for path in ("events?state=dead", "cases?status=OPEN", "refunds?status=FAILED"):
        assert f'href="/merchant/{path}"' in body
        assert (await person.get(f"/merchant/{path}")).status == 200
    await world.move_clock(8 * 24 * 3600)
    later = await member(api, MemberRole.FINANCE, "later@shop.test")
    assert "refund failed" not in await _overview(later)


async def test_the_overview_shows_the_last_ten_payments_with_separators(api: Api) -> None:
    payment_ids = [(await api.create(amount="1590")).json["id"] for _ in range(12)]
    person = await member(api)
    page = (await person.get("/merchant/overview")).body.decode()
    assert [item for item in payment_ids if item in page] == payment_ids[2:]
    assert page.count("1,590.00 THB") == 10


async def test_the_overview_shows_api_keys_only_to_developers(api: Api) -> None:
    developer, finance = await member(api), await member(api, MemberRole.FINANCE)
    assert "API keys Active 1 key Last used (UTC)" in await _overview(developer)
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, name="second"))
    assert "Active 2 keys" in await _overview(developer)
    public_id = issued.api_key.split("_")[2]
    assert (await developer.post(f"/merchant/keys/{public_id}/revoke")).status == 303
    page = await _overview(developer)
    assert "Active 1 key" in page
    assert public_id not in page
    assert "Last used" not in await _overview(finance)


async def test_the_overview_contains_no_data_of_another_merchant(api: Api) -> None:
    await give_endpoint(api.world)
    created = await create_paid(api, payer_uid="buyer-of-ours")
    await record_attempt(api.world, delivered=False)
    spy_merchant = await api.world.add_merchant()
    spy = await member(api, MemberRole.DEVELOPER, "spy@other.test", spy_merchant.merchant.id)
    page = await _overview(spy)
    assert created.json["id"] not in page
    assert "buyer-of-ours" not in page
    assert "failing" not in page
    assert "No payments yet" in page


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://shop.test/hook", "https://shop.test/hook"),
        ("https://user:pass@shop.test:8443/hook?key=x#y", "https://shop.test:8443/hook?…"),
        ("https://shop.test/" + "x" * 300, "https://shop.test/" + "x" * 182 + "…"),
    ],
)
def test_the_secrets_of_a_callback_url_are_hidden(url: str, masked: str) -> None:
    assert hide_url_secrets(url) == masked


def test_each_outcome_is_described_and_an_unknown_outcome_is_shown_as_is() -> None:
    outcomes = set(AttemptOutcome) - {AttemptOutcome.DELIVERED}
    assert {
        outcome for outcome in outcomes if describe_failure(_failure(outcome)) == outcome
    } == set()
    assert (
        describe_failure(_failure("of-an-older-version", 500)) == "of-an-older-version (HTTP 500)"
    )


def _failure(outcome: str, status: int | None = None) -> RecentAttempt:
    return RecentAttempt(at=datetime.now(UTC), outcome=outcome, status=status, detail="")
