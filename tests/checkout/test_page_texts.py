"""The wording of the hosted page: its languages, the receipt, the QR code and the link back."""

import json
import re
from importlib import resources
from io import BytesIO

import pytest
import segno

from payintent.core.languages import LOCALES, OWN_NAMES
from payintent.merchants.operations import SetMerchantProfile
from payintent.runtime.settings import Settings
from tests.refunds.requests import create_in_status
from tests.support.arrange import bring_to, callback, captured, payment_of, select, view
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

THANKS = "https://shop.test/thanks?o=1"
TEMPLATE_ERRORS = re.compile(r"built-in method|\bNone\b|Undefined|\{\w*\}|&lt;(?!b)")


def path_of(created: Answer, rest: str = "") -> str:
    return f"/c/{created.json['checkout_id']}{rest}"


async def show(api: Api, created: Answer, rest: str = "", **headers: str) -> str:
    named_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    page = await api.send("GET", path_of(created, rest), headers=named_headers)
    assert page.status == 200
    return page.body.decode()


def page_language(page: str) -> str:
    match = re.search(r'<html lang="([^"]*)" dir="(\w+)">', page)
    assert match is not None
    assert match[2] == ("rtl" if match[1] == "ar" else "ltr")
    return match[1]


@pytest.mark.parametrize(
    ("query", "accepted", "expected"),
    [
        ("", "", "en"),
        ("", "ja", "ja"),
        ("", "fr, de;q=0.9", "en"),
        ("", "fr, th;q=0.3, ja;q=0.8", "ja"),
        ("", "zh-HK", "zh-Hant"),
        ("?lang=ar", "ja", "ar"),
        ("?lang=AR-eg", "", "ar"),
        ("?lang=tlh", "id-ID", "id"),
        ("?lang=%00%ff", "", "en"),
        ("?lang=" + "x" * 2_000, "th", "th"),
    ],
)
async def test_the_page_is_in_the_requested_language(
    api: Api, query: str, accepted: str, expected: str
) -> None:
    created = await api.create()
    page = await show(api, created, query, Accept_Language=accepted)
    assert page_language(page) == expected
    assert f'<option value="{expected}" lang="{expected}" selected>' in page
    for tag, name in OWN_NAMES.items():
        assert f'lang="{tag}"' in page
        assert name in page


async def test_the_merchants_language_is_the_default(api: Api) -> None:
    await api.world.perform(SetMerchantProfile(merchant_id=api.world.merchant_id, locale="th"))
    created = await api.create()
    assert page_language(await show(api, created)) == "th"
    assert page_language(await show(api, created, Accept_Language="ja")) == "ja"


async def test_the_requested_language_is_kept_throughout_the_checkout(api: Api) -> None:
    created = await api.create()
    page = await show(api, created, "?lang=ja&country=TH")
    action = re.search(r'<form class="methods" method="post" action="([^"]*)"', page)
    method = re.search(r'name="method" value="([^"]*)"', page)
    assert action is not None
    assert method is not None
    assert action[1] == path_of(created, "/select?lang=ja&amp;country=TH")
    path = path_of(created, "/select?lang=ja&country=TH")
    assert (await api.send("POST", path, data={"method": method[1]})).status == 303
    [request] = api.world.gateway.created
    assert request.locale == "ja"
    assert request.return_url == f"http://pay.test{path_of(created, '/return?lang=ja')}"
    back = await api.send("GET", path_of(created, "/return?lang=ja"))
    assert back.headers["Location"] == path_of(created, "?lang=ja")
    await bring_to_paid(api, created)
    page = await show(api, created, "?lang=ja")
    assert f'href="{path_of(created, "/receipt?lang=ja")}"' in page
    assert page_language(await show(api, created, "/receipt?lang=ja")) == "ja"


async def bring_to_paid(api: Api, created: Answer) -> None:
    payment = await payment_of(api, created)
    assert (await callback(api, payment.session_id, captured())).status == 200


async def test_the_gateway_receives_a_supported_language_or_none(api: Api) -> None:
    for lang, locale in (("", None), ("?lang=%00%3Cx%3E", "en"), ("?lang=zh-TW", "zh-Hant")):
        created = await api.create()
        data = {"method": f"{api.world.card}||"}
        answer = await api.send("POST", path_of(created, f"/select{lang}"), data=data)
        assert answer.status == 303
        assert api.world.gateway.created[-1].locale == locale


STATUSES = ["PENDING", "PROCESSING", "PAID", "FAILED", "EXPIRED", "CANCELLED", "REFUNDED"]


@pytest.mark.parametrize("status", [*STATUSES, "PARTIALLY_REFUNDED"])
async def test_no_page_contains_template_errors_in_any_language(api: Api, status: str) -> None:
    created = await create_in_status(api, status)
    suffixes = ("", "/receipt") if "PAID" in status or "REFUND" in status else ("",)
    for locale in LOCALES:
        for suffix in suffixes:
            page = await show(api, created, f"{suffix}?lang={locale}")
            assert page_language(page) == locale
            text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
            assert not TEMPLATE_ERRORS.search(text), (locale, TEMPLATE_ERRORS.search(text))


def test_every_language_has_the_same_texts_and_placeholders() -> None:
    folder = resources.files("payintent") / "checkout" / "locales" / "texts"
    texts_by_locale = {item: json.loads((folder / f"{item}.json").read_text()) for item in LOCALES}
    for locale, texts in texts_by_locale.items():
        assert list(texts) == list(texts_by_locale["en"]), locale
        for key, text in texts.items():
            values = set(re.findall(r"\{(\w+)\}", text))
            assert values == set(re.findall(r"\{(\w+)\}", texts_by_locale["en"][key])), (
                locale,
                key,
            )
            assert text.strip() == text != "", (locale, key)


async def test_a_receipt_shows_the_payment_and_only_a_masked_email_of_the_buyer(api: Api) -> None:
    product = {"name": "The Sea <b>", "quantity": 2}
    metadata = {"product": product, "order_id": "A-9", "internal": "margin-38"}
    created = await api.create(payer_email="ann.smith@example.com", metadata=metadata)
    redirect = await api.send("GET", path_of(created, "/receipt"))
    assert (redirect.status, redirect.headers["Location"]) == (303, path_of(created))
    await bring_to(api, created, "PAID")
    page = await show(api, created, "/receipt")
    paid = (await api.get(created.json["id"])).json
    for text in (
        paid["receipt_id"],
        created.json["id"],
        "1,590.00\u00a0THB",
        "The Sea &lt;b&gt; × 2",
        "A-9",
        "a***@example.com",
        f'datetime="{paid["paid_at"]}"',
        "Nimbus Books",
        "Card",
    ):
        assert text in page, text
    for secret in ("ann.smith", "margin-38", "buyer-1", "Refunded"):
        assert secret not in page
    assert "<form" not in page


async def test_a_receipt_shows_the_refunded_amount(api: Api) -> None:
    created = await create_in_status(api, "PARTIALLY_REFUNDED")
    page = await show(api, created, "/receipt")
    assert "<dt>Refunded</dt><dd><bdi>90.00\u00a0THB</bdi></dd>" in page


@pytest.mark.parametrize("status", ["PROCESSING", "FAILED", "CANCELLED", "EXPIRED"])
async def test_an_unpaid_payment_has_no_receipt(api: Api, status: str) -> None:
    created = await create_in_status(api, status)
    answer = await api.send("GET", path_of(created, "/receipt?lang=ja"))
    assert (answer.status, answer.headers["Location"]) == (303, path_of(created, "?lang=ja"))


async def test_the_qr_code_encodes_the_page_url(api: Api) -> None:
    created = await api.create()
    answer = await api.send("GET", path_of(created, "/qr.svg?lang=ja"))
    assert (answer.status, answer.headers["Content-Type"]) == (200, "image/svg+xml")
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'"
    image = BytesIO()
    segno.make(f"http://pay.test{path_of(created)}", error="m").save(
        image, kind="svg", border=2, dark="#000", light="#fff", xmldecl=False
    )
    assert answer.body == image.getvalue()


class TestWithoutACheckoutBase:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"checkout_base": ""})

    async def test_the_page_shows_the_host_of_the_request(self, api: Api) -> None:
        created = await api.create()
        page = await show(api, created, Host="pay.other.test")
        assert f'data-text="http://pay.other.test{path_of(created)}"' in page
        assert 'data-url="/v1/checkout/' in page


async def test_the_return_link_contains_the_payment_id_and_status(api: Api) -> None:
    await api.world.perform(
        SetMerchantProfile(merchant_id=api.world.merchant_id, return_url=THANKS)
    )
    created = await api.create()
    hint = f"payment_id={created.json['id']}&amp;status"
    assert f'href="{THANKS}&amp;{hint}=PENDING"' in await show(api, created)
    await bring_to(api, created, "FAILED")
    page = await show(api, created)
    assert f'href="{THANKS}&amp;{hint}=FAILED"' in page
    assert f"checkout_id={created.json['checkout_id']}" not in page
    assert "<pay-return" not in page


async def test_a_buyer_returns_automatically_only_right_after_paying(api: Api) -> None:
    created = await api.create()
    await bring_to(api, created, "PAID")
    assert "<pay-return" not in await show(api, created)  # no return URL is configured
    await api.world.perform(
        SetMerchantProfile(merchant_id=api.world.merchant_id, return_url=THANKS)
    )
    assert "<pay-return" in await show(api, created)
    await api.world.move_clock(301)
    assert "<pay-return" not in await show(api, created)
    assert "<pay-return" not in await show(api, await create_in_status(api, "PARTIALLY_REFUNDED"))


async def test_the_view_reports_whether_the_merchant_was_notified(api: Api) -> None:
    url = "https://shop.test/hook"
    await api.world.rows("UPDATE merchant SET callback_url = $1", url)
    created = await api.create()
    checkout = (await view(api, created)).json
    assert checkout["events_url"] == f"/v1/checkout/{created.json['checkout_id']}/events"
    assert "merchant_told" not in checkout
    await bring_to(api, created, "PAID")
    assert (await view(api, created)).json["merchant_told"] is False
    for state in ("delivered", "dead", "skipped"):
        await api.world.rows("UPDATE delivery SET state = $1", state)
        assert (await view(api, created)).json["merchant_told"] is True
    cancelled = await api.create()
    await api.send("POST", f"/v1/checkout/{cancelled.json['checkout_id']}/cancel")
    assert (await view(api, cancelled)).json["merchant_told"] is True  # the merchant gets no event


async def test_an_elapsed_page_still_updates_but_offers_no_selection(api: Api) -> None:
    created = await api.create()
    await select(api, created)
    await api.world.move_clock(1_801)
    page = await show(api, created)
    assert "data-live" in page
    assert "<form" not in page
    assert "The time to pay has run out" in page
