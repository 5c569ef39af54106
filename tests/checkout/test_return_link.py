"""The URL of the checkout's link back to the shop, and the offer of a retry."""

import html
import re
from urllib.parse import parse_qsl, urlsplit

import pytest

from payintent.checkout.languages import LOCALES, load_language
from payintent.checkout.page_fields import PageResult, unpaid_result
from payintent.core import ids
from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.gateways.port import FailureReason
from payintent.merchants.operations import SetMerchantProfile
from payintent.payments.model import Payment, PaymentStatus
from payintent.payments.return_urls import add_return_query, choose_return_url, find_return_url
from payintent.payments.store import PaymentSnapshot
from payintent.runtime.settings import Settings
from tests.support.arrange import DECLINED, bring_to, callback, captured, payment_of, select, view
from tests.support.sample_values import NOW, PAYMENT_ID, a_merchant, a_payment
from tests.support.world import Answer, Api

_SHOP = "https://shop.example.com"
_MERCHANT_URL, _RETURN, _CANCEL, _SELECTED = (
    f"{_SHOP}/{page}" for page in ("registered", "thanks", "cart", "selected")
)
_URLS = {"return_url": f"{_RETURN}?order=A-1", "cancel_url": f"{_CANCEL}?order=A-1"}
_STATUSES = ("PENDING", "PROCESSING", "PAID", "FAILED", "EXPIRED", "CANCELLED")
_UNPAID = {"PENDING", "FAILED", "EXPIRED", "CANCELLED"}
_HINT = f"payment_id={ids.format_id(ids.PAYMENT, PAYMENT_ID)}&status=PENDING"
_CLOSE_SESSION = "UPDATE session SET life = 'ended', outcome = 'closed', ended_at = clock()"
_EXPIRE_PAYMENT = "UPDATE payment SET status = 'EXPIRED', expired_at = clock()"
_LINK = re.compile(r'<a(?: class="button")? href="(https://shop\.example\.com/[^"]*)"[^>]*>([^<]*)')


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Load the policies for every page."""
    return settings.model_copy(update={"policy_cache_s": 0.0})


async def _set_profile(api: Api, *origins: str, return_url: str = _MERCHANT_URL) -> None:
    profile = SetMerchantProfile(
        merchant_id=api.world.merchant_id, allowed_origins=list(origins), return_url=return_url
    )
    await api.world.perform(profile)


async def _links(api: Api, created: Answer, rest: str = "") -> list[tuple[str, str]]:
    """List the links to the shop on the checkout page, with their labels."""
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}{rest}")).body.decode()
    return [(html.unescape(url), text) for url, text in _LINK.findall(page)]


@pytest.mark.parametrize("status", _STATUSES)
async def test_the_return_link_depends_on_the_status(api: Api, status: str) -> None:
    await _set_profile(api, _SHOP)
    created = await api.create(**_URLS)
    await bring_to(api, created, status)
    base = _URLS["cancel_url" if status in _UNPAID else "return_url"]
    text = "Try again" if status in {"FAILED", "EXPIRED"} else "Back to Nimbus Books"
    link = f"{base}&payment_id={created.json['id']}&status={status}"
    assert await _links(api, created) == [(link, text)]
    assert (await view(api, created)).json["return_url"] == base


async def test_the_return_url_comes_from_the_selection_or_the_payment_or_the_merchant(
    api: Api,
) -> None:
    await _set_profile(api, _SHOP)
    for urls, selected, unpaid, paid in (
        ({}, None, _MERCHANT_URL, _MERCHANT_URL),
        ({"return_url": _RETURN}, None, _RETURN, _RETURN),
        ({"cancel_url": _CANCEL}, None, _CANCEL, _MERCHANT_URL),
        ({"return_url": _RETURN, "cancel_url": _CANCEL}, None, _CANCEL, _RETURN),
        ({}, _SELECTED, _SELECTED, _SELECTED),
        ({"return_url": _RETURN}, _SELECTED, _SELECTED, _SELECTED),
        ({"return_url": _RETURN, "cancel_url": _CANCEL}, _SELECTED, _CANCEL, _SELECTED),
    ):
        payment = {"merchant": a_merchant(allowed_origins=(_SHOP,), return_url=_MERCHANT_URL)}
        failed = a_payment(
            status=PaymentStatus.FAILED, failure_reason=FailureReason.DECLINED, **urls
        )
        assert choose_return_url(failed, selected, **payment) == unpaid, (urls, selected)
        assert find_return_url(failed, selected, **payment) == paid, (urls, selected)
        created = await api.create(**urls)
        assert (await select(api, created, return_url=selected)).status == 200
        assert (await view(api, created)).json["return_url"] == paid


async def test_a_url_is_not_linked_after_its_origin_was_removed(api: Api) -> None:
    await _set_profile(api, "https://old.example.com", _SHOP)
    urls = {name: url.replace("shop", "old", 1) for name, url in _URLS.items()}
    created = await api.create(**urls)
    answer = await select(api, created, return_url="https://old.example.com/selected")
    assert answer.status == 200
    for status in ("PROCESSING", "FAILED"):
        if status == "FAILED":
            payment = await payment_of(api, created)
            assert (await callback(api, payment.session_id, DECLINED)).status == 200
        await _set_profile(api, "https://old.example.com", _SHOP)
        assert (await view(api, created)).json["return_url"].startswith("https://old.example.com/")
        await _set_profile(api, _SHOP)
        [(link, _)] = await _links(api, created)
        assert link == f"{_MERCHANT_URL}?payment_id={created.json['id']}&status={status}"
        assert (await view(api, created)).json["return_url"] == _MERCHANT_URL
        await _set_profile(api, _SHOP, return_url="")
        assert await _links(api, created) == []
        assert "return_url" not in (await view(api, created)).json


@pytest.mark.parametrize(
    ("url", "link"),
    [
        (_MERCHANT_URL, f"{_MERCHANT_URL}?{_HINT}"),
        (f"{_MERCHANT_URL}?", f"{_MERCHANT_URL}?{_HINT}"),
        (f"{_MERCHANT_URL}?a=1&b=%20+&c", f"{_MERCHANT_URL}?a=1&b=%20+&c&{_HINT}"),
        (
            f"{_MERCHANT_URL}?status=PAID&a=1&payment_id=pay_x&status",
            f"{_MERCHANT_URL}?a=1&{_HINT}",
        ),
        (
            f"{_MERCHANT_URL}?st%61tus=PAID&payment%5Fid=x&statuses=1",
            f"{_MERCHANT_URL}?statuses=1&{_HINT}",
        ),
        (f"{_MERCHANT_URL}?a=1#part", f"{_MERCHANT_URL}?a=1&{_HINT}#part"),
        (_SHOP, f"{_SHOP}?{_HINT}"),
        ("https://[2001:db8::1]:8443/x", f"https://[2001:db8::1]:8443/x?{_HINT}"),
    ],
)
def test_the_query_is_preserved_except_for_the_payment_id_and_status(url: str, link: str) -> None:
    assert add_return_query(url, a_payment()) == link
    names = [name for name, _ in parse_qsl(urlsplit(link).query)]
    assert names.count("payment_id") == names.count("status") == 1


def test_a_huge_query_is_parsed_in_linear_time() -> None:
    url = f"{_MERCHANT_URL}?" + "&".join(["status=x"] * 100_000) + "&" * 100_000
    assert add_return_query(url, a_payment()) == f"{_MERCHANT_URL}?{_HINT}"


_RETRIES = {
    FailureReason.DECLINED: True,
    FailureReason.UNKNOWN: True,
    FailureReason.TX_REVERTED: True,
    FailureReason.AMOUNT_MISMATCH: False,
    FailureReason.TOKEN_MISMATCH: False,
    FailureReason.ONCHAIN_TIMEOUT: False,
}


@pytest.mark.parametrize("reason", FailureReason)
def test_a_retry_is_offered_unless_money_arrived_or_may_arrive(reason: FailureReason) -> None:
    payment = a_payment(status=PaymentStatus.FAILED, failure_reason=reason, **_URLS)
    merchant = a_merchant(allowed_origins=(_SHOP,))
    link = choose_return_url(payment, None, merchant)
    assert link == _URLS["cancel_url" if _RETRIES[reason] else "return_url"]
    assert _result(payment).offers_retry is _RETRIES[reason]
    assert not _result(payment, has_arrived=True).offers_retry


def _result(
    payment: Payment, *, has_arrived: bool = False, link: str | None = _MERCHANT_URL
) -> PageResult:
    snapshot = PaymentSnapshot(payment, None, NOW)
    return unpaid_result(snapshot, load_language("en"), has_arrived=has_arrived, return_link=link)


def test_an_unpaid_page_mentions_the_shop_if_it_cannot_link_to_it() -> None:
    again = " To try again, return to the shop."
    failed = a_payment(status=PaymentStatus.FAILED, failure_reason=FailureReason.UNKNOWN)
    expired = a_payment(status=PaymentStatus.EXPIRED)
    for payment, text in (
        (failed, "The payment could not be completed. You were not charged."),
        (expired, "You were not charged."),
    ):
        assert _result(payment).text == text
        assert _result(payment, link=None).text == text + again
    mismatch = a_payment(status=PaymentStatus.FAILED, failure_reason=FailureReason.AMOUNT_MISMATCH)
    assert "try again" not in _result(mismatch, link=None).text


@pytest.mark.parametrize("status", ["FAILED", "EXPIRED"])
async def test_a_retry_is_not_offered_after_a_late_capture(api: Api, status: str) -> None:
    await _set_profile(api, _SHOP)
    created = await api.create(**_URLS)
    assert (await select(api, created)).status == 200
    payment = await payment_of(api, created)
    if status == "FAILED":
        assert (await callback(api, payment.session_id, DECLINED, "cb-0")).status == 200
    else:
        for statement in (_CLOSE_SESSION, _EXPIRE_PAYMENT):
            await api.world.rows(statement)
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}")).body.decode()
    assert "You were not charged." in page
    assert "Try again" in page
    assert (await callback(api, payment.session_id, captured())).status == 200
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}")).body.decode()
    assert load_language("en").t("not_accepted") in page
    assert "You were not charged." not in page
    assert [text for _, text in await _links(api, created)] == ["Back to Nimbus Books"]


async def test_an_expired_payment_with_an_open_session_may_have_been_charged(api: Api) -> None:
    await _set_profile(api, _SHOP)
    created = await api.create(**_URLS)
    assert (await select(api, created)).status == 200
    for statement in ("UPDATE session SET life = 'closing', closing_at = clock()", _EXPIRE_PAYMENT):
        await api.world.rows(statement)
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}")).body.decode()
    assert load_language("en").t("unconfirmed") in page
    assert "You were not charged." not in page
    assert [text for _, text in await _links(api, created)] == ["Back to Nimbus Books"]
    await api.world.rows(
        "UPDATE session SET life = 'ended', outcome = 'closed', ended_at = clock()"
    )
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}")).body.decode()
    assert "You were not charged." in page
    assert [text for _, text in await _links(api, created)] == ["Try again"]


@pytest.mark.parametrize("locale", LOCALES)
async def test_a_retry_is_offered_in_every_language(api: Api, locale: str) -> None:
    await _set_profile(api, _SHOP)
    created = await api.create(**_URLS)
    await bring_to(api, created, "FAILED")
    [(_, text)] = await _links(api, created, f"?lang={locale}")
    assert text == load_language(locale).t("try_again")


async def test_a_denied_buyer_gets_a_link_to_the_cancel_url(api: Api) -> None:
    await _set_profile(api, _SHOP)
    created = await api.create(**_URLS)
    await api.world.perform(AddFraudRule(kind=FraudRuleKind.PAYER, value="buyer-1"))
    [(link, text)] = await _links(api, created)
    assert link == f"{_URLS['cancel_url']}&payment_id={created.json['id']}&status=PENDING"
    assert text == "Back to Nimbus Books"


class TestWithoutAHostedPage:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"checkout_base": ""})

    async def test_the_gateway_receives_the_return_url_of_the_selection_or_payment(
        self, api: Api
    ) -> None:
        await _set_profile(api, _SHOP)
        created = await api.create(**_URLS)
        for selected, expected in ((None, _URLS["return_url"]), (_SELECTED, _SELECTED)):
            assert (await select(api, created, return_url=selected)).status == 200
            assert api.world.gateway.created[-1].return_url == expected
        await _set_profile(api)
        created = await api.create(return_url=f"{_MERCHANT_URL}/again")
        await _set_profile(api, return_url="https://new.example.com/")
        assert (await select(api, created)).status == 200
        assert api.world.gateway.created[-1].return_url == "https://new.example.com/"


async def test_a_script_in_a_return_url_is_escaped(api: Api) -> None:
    await _set_profile(api, _SHOP)
    url = f"{_SHOP}/'onclick='alert(1)'?a=%22%3E%3Cscript%3E&b=1"
    created = await api.create(return_url=url)
    await bring_to(api, created, "PAID")
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}")).body.decode()
    link = f"{url}&payment_id={created.json['id']}&status=PAID"
    escaped = link.replace("&", "&amp;").replace("'", "&#39;")
    # The URL occurs in the link and in the automatic return.
    assert page.count(escaped) == page.count("onclick") == 2
    assert f'href="{escaped}"' in page
    assert f'data-to="{escaped}"' in page
