"""The page of a link: its content, the creation of a payment, and resumed payments."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from payintent.checkout.languages import load_language
from payintent.checkout.link_page import normalize_amount
from payintent.core.languages import LOCALES
from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.operations import SetMerchantProfile
from tests.payment_links.link_setup import post_link, token_of
from tests.support.arrange import DECLINED, callback, captured, payment_of, select
from tests.support.world import Answer, Api

ORIGIN = "http://pay.test"
SHOP = "https://shop.test"


async def make(api: Api, **terms: Any) -> str:
    """Create a link and return the path of its page."""
    return f"/c/link/{token_of(await post_link(api, **terms))}"


async def submit(
    api: Api, path: str, amount: str | None = None, form: str = "", **headers: str
) -> Answer:
    data = {"form": form or uuid4().hex} | ({} if amount is None else {"amount": amount})
    return await api.send("POST", path, data=data, headers=headers)


def cookie_of(answer: Answer) -> str:
    return answer.headers["Set-Cookie"].partition(";")[0]


async def payments(api: Api) -> list[str]:
    rows = await api.world.rows("SELECT status FROM payment ORDER BY id")
    return [row["status"] for row in rows]


async def test_opening_a_link_shows_the_terms_and_creates_no_payment(api: Api) -> None:
    path = await make(api, title="Tea & cake", description="For <two>", order_id="T-1")
    for _ in range(3):
        page = await api.send("GET", path)
        assert page.status == 200
    text = page.body.decode()
    assert "Tea &amp; cake" in text
    assert "For &lt;two&gt;" in text
    assert "Order T-1" in text
    assert "1,590.00" in text
    assert await payments(api) == []
    assert page.headers["Cache-Control"] == "no-store"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    assert "Set-Cookie" not in page.headers


async def test_the_button_creates_a_payment_and_redirects_to_its_checkout(api: Api) -> None:
    path = await make(api)
    answer = await submit(api, f"{path}?lang=th")
    assert answer.status == 303
    assert re.fullmatch(r"/c/cs_[0-9A-Za-z]{16}\?lang=th", answer.headers["Location"])
    assert await payments(api) == ["PENDING"]
    checkout = await api.send("GET", answer.headers["Location"])
    assert "Workshop" in checkout.body.decode()
    cookie = answer.headers["Set-Cookie"]
    assert f"Path={path}" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


async def test_a_browser_continues_its_payment_and_another_browser_gets_a_new_payment(
    api: Api,
) -> None:
    path = await make(api)
    first = await submit(api, path)
    cookie = {"Cookie": cookie_of(first)}
    reopened = await api.send("GET", path, headers=cookie)
    assert (reopened.status, reopened.headers["Location"]) == (303, first.headers["Location"])
    again = await submit(api, path, **cookie)
    assert again.headers["Location"] == first.headers["Location"]
    other = await submit(api, path)
    assert other.headers["Location"] != first.headers["Location"]
    assert await payments(api) == ["PENDING", "PENDING"]


@pytest.mark.parametrize(("max_uses", "status"), [(1, 303), (None, 200)])
async def test_after_its_payment_a_browser_shows_the_result_or_offers_to_pay_again(
    api: Api, max_uses: int | None, status: int
) -> None:
    path = await make(api, max_uses=max_uses)
    first = await submit(api, path)
    await _pay(api, first.headers["Location"].rpartition("/")[2])
    page = await api.send("GET", path, headers={"Cookie": cookie_of(first)})
    assert page.status == status
    stranger = (await api.send("GET", path)).body.decode()
    assert ("already been used" in stranger) == (max_uses == 1)


@pytest.mark.parametrize("cancel_url", [None, f"{SHOP}/basket"])
async def test_after_a_failed_payment_the_buyer_can_try_again_with_the_link(
    api: Api, cancel_url: str | None
) -> None:
    shop = SetMerchantProfile(
        merchant_id=api.world.merchant_id, allowed_origins=[SHOP], return_url=f"{SHOP}/shop"
    )
    await api.world.perform(shop)
    path = await make(api, max_uses=1, cancel_url=cancel_url)
    first = await submit(api, f"{path}?lang=en")
    checkout_path = first.headers["Location"]
    await _end(api, checkout_path.partition("?")[0].rpartition("/")[2], DECLINED)
    page = (await api.send("GET", checkout_path)).body.decode()
    [target] = re.findall(r'<a class="button" href="([^"]*)"[^>]*>Try again</a>', page)
    assert target.partition("?")[0] == (cancel_url or path)
    if cancel_url is None:
        reopened = await api.send("GET", target, headers={"Cookie": cookie_of(first)})
        assert reopened.status == 200
        assert (await submit(api, path)).status == 303
        assert await payments(api) == ["FAILED", "PENDING"]
        page = (await api.send("GET", checkout_path)).body.decode()
        assert f'href="{SHOP}/shop?' in page  # the other payment holds the only use


async def _pay(api: Api, checkout_id: str) -> None:
    await _end(api, checkout_id, captured())


async def _end(api: Api, checkout_id: str, fact: Any) -> None:
    view = (await api.send("GET", f"/v1/checkout/{checkout_id}")).json
    created = await api.get(view["payment_id"])
    assert (await select(api, created)).status == 200
    session_id = (await payment_of(api, created)).session_id
    assert (await callback(api, session_id, fact, callback_id=checkout_id)).status == 200


@pytest.mark.parametrize(
    "cookie", ["cs_0000000000000000", "x", "cs_" + "0" * 5_000, "cs_\\000000000000000"]
)
async def test_an_invalid_cookie_is_ignored(api: Api, cookie: str) -> None:
    path = await make(api)
    page = await api.send("GET", path, headers={"Cookie": f"payintent_link={cookie}"})
    assert page.status == 200


async def test_the_cookie_of_another_link_is_ignored(api: Api) -> None:
    first = await submit(api, await make(api))
    page = await api.send("GET", await make(api), headers={"Cookie": cookie_of(first)})
    assert page.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.test"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_a_cross_site_form_creates_no_payment(api: Api, headers: dict[str, str]) -> None:
    answer = await submit(api, await make(api), **headers)
    assert answer.status == 403
    assert await payments(api) == []


async def test_a_form_without_an_id_creates_no_payment(api: Api) -> None:
    path = await make(api)
    for form in ({}, {"form": "x" * 41}, {"form": "ö"}):
        assert (await api.send("POST", path, data=form)).status == 400
    assert await payments(api) == []


async def test_an_open_amount_is_entered_and_checked(api: Api) -> None:
    path = await make(api, amount=None, amount_min="20", amount_max="500")
    page = (await api.send("GET", path)).body.decode()
    assert 'inputmode="decimal"' in page
    assert "From 20.00\u00a0THB to 500.00\u00a0THB" in page
    for amount, status in (("19.99", 422), ("1e2", 400), ("", 400), ("500.01", 422)):
        refused = await submit(api, path, amount)
        assert refused.status == status
        assert 'aria-invalid="true"' in refused.body.decode()
    assert 'value="500.01"' in refused.body.decode()
    assert await payments(api) == []
    assert (await submit(api, path, " 49,5 ")).status == 303
    [row] = await api.world.rows("SELECT amount_text FROM payment")
    assert row["amount_text"] == "49.5"


async def test_a_closed_link_shows_the_reason_and_creates_no_payment(api: Api) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    inactive = await post_link(api)
    await api.send(
        "POST", f"/v1/payment-links/{inactive.json['id']}/deactivate", headers=api.bearer()
    )
    single = await make(api, max_uses=1)
    assert (await submit(api, single)).status == 303
    expiring = await make(api, expires_at=soon)
    await api.world.move_clock(31)
    for path, text in (
        (f"/c/link/{token_of(inactive)}", "no longer active"),
        (expiring, "has expired"),
        (single, "already been used"),
    ):
        page, answer = await api.send("GET", path), await submit(api, path)
        assert (page.status, answer.status) == (200, 409)
        for body in (page.body.decode(), answer.body.decode()):
            assert text in body
            assert 'method="post"' not in body
    assert await payments(api) == ["PENDING"]


async def test_a_suspended_merchants_page_says_that_it_accepts_no_payments(api: Api) -> None:
    path = await make(api)
    await api.world.rows("UPDATE merchant SET activation = 'SUSPENDED'")
    for answer, status in ((await api.send("GET", path), 200), (await submit(api, path), 422)):
        assert answer.status == status
        assert "not accepting new payments" in answer.body.decode()
        assert 'method="post"' not in answer.body.decode()


async def test_a_denied_buyer_is_not_told_why(api: Api) -> None:
    path = await make(api)
    await api.world.perform(
        AddFraudRule(kind=FraudRuleKind.PAYER_VELOCITY, count_max=1, window_s=3_600)
    )
    first = await submit(api, path)
    checkout_id = first.headers["Location"].rpartition("/")[2]
    await api.send("POST", f"/v1/checkout/{checkout_id}/cancel")
    denied = await submit(api, path, Cookie=cookie_of(first))
    assert denied.status == 200
    assert "can’t be processed" in denied.body.decode()
    assert await payments(api) == ["CANCELLED"]


@pytest.mark.parametrize("token", ["lnk_0000000000000000000000", "lnk_x", "%00", "x" * 300])
async def test_an_unknown_link_is_not_found(api: Api, token: str) -> None:
    for method, path in (("GET", ""), ("POST", ""), ("GET", "/qr.svg")):
        assert (await api.send(method, f"/c/link/{token}{path}")).status == 404


async def test_a_test_link_is_labelled_and_creates_test_payments(api: Api) -> None:
    tester = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    headers = api.bearer(tester.api_key) | {"Idempotency-Key": str(uuid4())}
    terms = {"title": "Trial", "currency": "USD", "amount": "5"}
    link = await api.send("POST", "/v1/payment-links", json=terms, headers=headers)
    path = f"/c/link/{token_of(link)}"
    assert "Test mode" in (await api.send("GET", path)).body.decode()
    assert (await submit(api, path)).status == 303
    [row] = await api.world.rows(
        "SELECT m.livemode FROM payment p JOIN merchant m ON m.id = p.merchant_id"
    )
    assert row["livemode"] is False


async def test_the_qr_code_contains_the_link_url(api: Api) -> None:
    link = await post_link(api)
    code = await api.send("GET", f"/c/link/{token_of(link)}/qr.svg")
    assert code.headers["Content-Type"] == "image/svg+xml"
    assert code.body.startswith(b"<svg")


@pytest.mark.parametrize("locale", LOCALES)
async def test_the_page_is_available_in_every_language(api: Api, locale: str) -> None:
    path = await make(api, amount=None, amount_min="20")
    page = (await api.send("GET", f"{path}?lang={locale}")).body.decode()
    assert f'<html lang="{locale}"' in page


@pytest.mark.parametrize(
    ("text", "locale", "amount"),
    [
        ("49.5", "en", "49.5"),
        (" 1,590.00 ", "en", "1590.00"),
        ("1.590,00", "id", "1590.00"),
        ("1.590", "id", "1590"),
        ("49,50", "en", "49.50"),
        ("49,50", "id", "49.50"),
        ("1,590", "en", "1590"),
        ("12,34,567", "en", "12,34,567"),
        ("1,,000", "en", "1,,000"),
        ("1590,000.50", "en", "1590,000.50"),
        ("٢٠٫٥", "ar", "20.5"),
        ("١٬٥٩٠٫٥٠", "ar", "1590.50"),
        ("٢٠٫٥٠٠", "id", "20,500"),
        ("１，５９０．５０", "ja", "1590.50"),
        ("๒๐", "th", "20"),
        ("２０", "ja", "20"),
        ("-5", "en", "-5"),
        ("1e5", "en", "1e5"),
        ("", "en", ""),
        ("9" * 41, "en", "9" * 41),
    ],
)
def test_an_amount_is_read_in_the_buyers_notation(text: str, locale: str, amount: str) -> None:
    assert normalize_amount(text, load_language(locale)) == amount
