from datetime import UTC, datetime, timedelta

import pytest

from tests.sandbox.simulator.simulator_setup import OTHER_KEY, Merchant, Shop

pytestmark = pytest.mark.full

APPROVED = "4242424242424242"


async def test_a_new_session_is_open_and_found_by_id_and_reference(shop: Shop) -> None:
    order = shop.order()
    reply = await shop.call("POST", "/v1/sessions", json=order)
    session = reply.json
    assert reply.status == 201
    assert session == {
        "id": session["id"],
        "reference": order["reference"],
        "status": "open",
        "pay_url": f"{shop.url}/pay/{session['id']}",
        "amount_minor": 159_000,
        "currency": "THB",
    }
    assert await shop.inquire(session["id"]) == await shop.inquire(order["reference"]) == session


async def test_a_repeated_reference_returns_the_session_but_a_changed_order_returns_409(
    shop: Shop,
) -> None:
    order = shop.order()
    first = await shop.call("POST", "/v1/sessions", json=order)
    repeated = await shop.call("POST", "/v1/sessions", json=order)
    dearer = await shop.call("POST", "/v1/sessions", json=order | {"amount_minor": 159_001})
    other_currency = await shop.call("POST", "/v1/sessions", json=order | {"currency": "USD"})
    assert (repeated.status, repeated.json) == (200, first.json)
    assert (dearer.status, other_currency.status) == (409, 409)


async def test_a_wrong_key_gets_a_401_and_a_session_of_another_account_gets_a_404(
    shop: Shop,
) -> None:
    session = await shop.create()
    path = f"/v1/sessions/{session['id']}"
    by_reference = f"/v1/sessions/{session['reference']}"
    assert (await shop.call("GET", path, key="nobody")).status == 401
    assert (await shop.call("GET", path, key="")).status == 401
    assert (await shop.call("POST", "/v1/sessions", key="nobody", json={})).status == 401
    assert (await shop.call("POST", f"{path}/cancel", key="nobody")).status == 401
    assert (await shop.call("GET", path, key=OTHER_KEY)).status == 404
    assert (await shop.call("GET", by_reference, key=OTHER_KEY)).status == 404
    assert (await shop.call("POST", f"{path}/cancel", key=OTHER_KEY)).status == 404
    assert (await shop.inquire(session["id"]))["status"] == "open"


async def test_two_accounts_can_use_the_same_reference(shop: Shop) -> None:
    order = shop.order()
    first_account = await shop.call("POST", "/v1/sessions", json=order)
    second_account = await shop.call("POST", "/v1/sessions", key=OTHER_KEY, json=order)
    assert (first_account.status, second_account.status) == (201, 201)
    assert first_account.json["id"] != second_account.json["id"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"amount_minor": 0}, 400),
        ({"amount_minor": -1}, 400),
        ({"amount_minor": "100"}, 400),
        ({"amount_minor": 1.5}, 400),
        ({"amount_minor": True}, 400),
        ({"currency": "XXX"}, 422),
        ({"reference": "ps_looks_like_ours"}, 400),
        ({"reference": "re_looks_like_ours"}, 400),
        ({"reference": "a/b"}, 400),
        ({"reference": "line\n"}, 400),
        ({"return_url": "javascript:alert(1)"}, 400),
        ({"callback_url": "ftp://shop.example/"}, 400),
        ({"expires_at": "2020-01-01T00:00:00Z"}, 422),
        ({"expires_at": "2099-01-01T00:00:00"}, 400),
        ({"description": None}, 400),
    ],
)
async def test_an_invalid_order_is_refused_with_a_reason(
    shop: Shop, change: dict[str, object], status: int
) -> None:
    reply = await shop.call("POST", "/v1/sessions", json=shop.order(**change))
    assert reply.status == status
    assert reply.json["error"]


async def test_invalid_oversized_and_misdirected_requests_are_refused(shop: Shop) -> None:
    garbage = await shop.call("POST", "/v1/sessions", data=b'{"reference": \xff')
    large = await shop.call("POST", "/v1/sessions", data=b" " * 70_000)
    nowhere = await shop.call("GET", "/v1/payouts")
    wrong_method = await shop.call("DELETE", "/v1/sessions")
    assert [reply.status for reply in (garbage, large, nowhere, wrong_method)] == [
        400,
        413,
        404,
        405,
    ]
    assert all("error" in reply.json for reply in (garbage, nowhere, wrong_method))


async def test_a_closed_session_cannot_be_paid(shop: Shop, merchant: Merchant) -> None:
    session = await shop.create()
    closed = await shop.cancel(session["reference"])
    assert (closed.status, closed.json["status"]) == (200, "closed")
    assert (await shop.pay(session, APPROVED)).status == 409
    repeated = await shop.cancel(session["id"])
    assert (repeated.status, repeated.json["status"]) == (200, "closed")
    assert merchant.received == []


async def test_a_paid_session_cannot_be_closed_and_reports_its_capture(shop: Shop) -> None:
    session = await shop.create()
    await shop.pay(session, APPROVED)
    reply = await shop.cancel(session["id"])
    assert (reply.status, reply.json["status"]) == (409, "paid")
    assert reply.json["capture"]["amount_minor"] == 159_000


async def test_a_session_expires_at_its_deadline_and_closes_as_expired(shop: Shop) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    session = await shop.create(expires_at=soon.isoformat())
    await shop.until(session["id"], "expired")
    assert (await shop.pay(session, APPROVED)).status == 409
    closed = await shop.cancel(session["id"])
    assert (closed.status, closed.json["status"]) == (200, "expired")


async def test_the_page_works_without_scripts_and_escapes_text(shop: Shop) -> None:
    session = await shop.create()
    page = await shop.call("GET", session["pay_url"], key="")
    assert page.status == 200
    assert "Test mode" in page.text
    assert "1590.00 THB" in page.text
    assert "A book &lt;b&gt;" in page.text
    assert f'value="{APPROVED}"' in page.text
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    yen = await shop.create(amount_minor=500, currency="JPY")
    assert "500 JPY" in (await shop.call("GET", yen["pay_url"], key="")).text


async def test_the_page_is_found_only_by_its_unguessable_id(shop: Shop) -> None:
    session = await shop.create()
    assert (await shop.call("GET", f"/pay/{session['reference']}", key="")).status == 404


async def test_the_buyer_can_cancel_on_the_page(shop: Shop, merchant: Merchant) -> None:
    session = await shop.create()
    reply = await shop.call("POST", f"{session['pay_url']}/cancel", key="")
    assert (reply.status, reply.headers["location"]) == (
        303,
        "https://shop.example/return?x=1",
    )
    [received] = await merchant.wait_for(1)
    assert received.event["type"] == "session.cancelled"
    assert received.event["session"]["status"] == "cancelled"
    assert (await shop.call("POST", f"{session['pay_url']}/cancel", key="")).status == 409
    assert "This session is cancelled" in (await shop.call("GET", session["pay_url"], key="")).text


async def test_a_paid_session_cannot_be_cancelled_by_the_buyer(
    shop: Shop, merchant: Merchant
) -> None:
    session = await shop.create()
    await shop.pay(session, APPROVED)
    assert (await shop.call("POST", f"{session['pay_url']}/cancel", key="")).status == 409
    assert (await shop.inquire(session["id"]))["status"] == "paid"


async def test_an_unknown_card_shows_the_page_again(shop: Shop, merchant: Merchant) -> None:
    session = await shop.create()
    for card in ("4111111111111111", "", "4000009900000161"):
        reply = await shop.pay(session, card)
        assert reply.status == 422
        assert 'role="alert"' in reply.text
    assert (await shop.inquire(session["id"]))["status"] == "open"
    assert (await shop.call("POST", session["pay_url"], key="", data=b"\xff=\xff")).status == 400
