"""The hosted checkout's forms and links, which work completely without JavaScript."""

import re
from dataclasses import replace
from decimal import Decimal
from urllib.parse import urlsplit

import pytest

from payintent.checkout.languages import load_language
from payintent.checkout.page_fields import paid_result
from payintent.gateways.port import GatewaySessionRequest, OutcomeUnknown, SessionCreated
from payintent.merchants import taxes as tax_rates
from payintent.runtime.settings import Settings
from tests.refunds.requests import create_in_status
from tests.support.arrange import bring_to, callback, payment_of
from tests.support.world import Answer, Api

_TITLES = {
    "PENDING": "How would you like to pay?",
    "PROCESSING": "Continue to payment",
    "PAID": "Thank you for your payment. We’ll let Nimbus Books know.",
    "FAILED": "The payment did not go through",
    "EXPIRED": "This payment has expired",
    "CANCELLED": "The payment was cancelled",
    "PARTIALLY_REFUNDED": "90.00\u00a0THB of your payment has been refunded",
    "REFUNDED": "Your payment has been refunded",
}
_REASONS = {
    "DECLINED": "Your bank or the payment provider declined the payment",
    "TX_REVERTED": "The network rejected the transaction",
    "AMOUNT_MISMATCH": "Our team will review it",
    "TOKEN_MISMATCH": "Our team will review it",
    "ONCHAIN_TIMEOUT": "did not confirm the payment in time",
    "UNKNOWN": "The payment could not be completed",
}
_OWN_SCRIPT = r'<script type="module" src="/c/static/[0-9a-f]{12}-en/checkout\.js">'
_EDGE_HEADERS = {"CloudFront-Viewer-Country": "PH", "X-Edge-Secret": "edge-secret"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    secret = type(settings.edge_secret)("edge-secret")
    update = {"edge_secret": secret, "edge_trusted_proxies": "127.0.0.1"}
    return settings.model_copy(update=update | {"database_lock_timeout_ms": 300})


def _path(created: Answer) -> str:
    return f"/c/{created.json['checkout_id']}"


async def _show(api: Api, created: Answer, query: str = "", **options: object) -> Answer:
    return await api.send("GET", _path(created) + query, **options)


def _form(page: Answer, number: int = 0) -> dict[str, str]:
    """Return the fields that a browser sends if the buyer selects a method."""
    form = re.search(r'<form class="methods"(.*?)</form>', page.body.decode(), re.DOTALL)
    assert form is not None
    methods = re.findall(r'<input type="radio" name="method" value="([^"]*)"', form[1])
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form[1]))
    return hidden | {"method": methods[number]}


def _checked(page: Answer) -> list[str]:
    return re.findall(r'name="method" value="([^"]*)"[^>]* checked', page.body.decode())


async def _submit(api: Api, created: Answer, fields: dict[str, str], **options: object) -> Answer:
    return await api.send("POST", f"{_path(created)}/select", data=fields, **options)


async def _follow_redirect(api: Api, selected: Answer) -> Answer:
    location = urlsplit(selected.headers["Location"])
    return await api.send("GET", f"{location.path}?{location.query}")


async def test_a_gateway_form_is_posted_once_and_continuing_opens_a_new_session(api: Api) -> None:
    def answer(request: GatewaySessionRequest) -> SessionCreated:
        fields = {"order": request.session_id.hex}
        redirect = {"url": "https://bank.test/pay", "method": "POST", "fields": fields}
        return SessionCreated(
            reference=request.session_id.hex,
            next_action={"type": "redirect", "redirect": redirect},
        )

    api.world.gateway.answer_create = answer
    created = await api.create()
    selected = await _submit(api, created, _form(await _show(api, created)))
    assert selected.status == 303  # if the buyer presses Back, the page can be requested again
    await _show(api, created)  # another device of the buyer loads the page first
    first = await _follow_redirect(api, selected)
    posted = re.findall(r'name="order" value="(\w+)"', first.body.decode())
    assert len(posted) == 1
    back = await _follow_redirect(api, selected)  # the buyer presses Back
    assert "bank.test/pay" not in back.body.decode()
    again = re.search(r'<input type="hidden" name="method" value="([^"]*)"', back.body.decode())
    assert again is not None
    selected = await _submit(api, created, {"method": again[1]})
    assert selected.status == 303
    await _show(api, created)
    second = await _follow_redirect(api, selected)
    posted += re.findall(r'name="order" value="(\w+)"', second.body.decode())
    assert len(set(posted)) == 2
    # The gateway was queried, because the buyer might have completed the first session.
    assert api.world.gateway.inquired != []
    assert (await payment_of(api, created)).status == "PROCESSING"


@pytest.mark.parametrize("status", _TITLES)
async def test_the_page_shows_every_payment_status(api: Api, status: str) -> None:
    created = await create_in_status(api, status)
    page = await _show(api, created)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert _TITLES[status] in page.body.decode()
    heading = "Pay Nimbus Books" if status in {"PENDING", "PROCESSING"} else "Nimbus Books"
    assert f"<h1>{heading}</h1>" in page.body.decode()
    assert "1,590.00" in page.body.decode()
    assert ("/select" in page.body.decode()) == (status in {"PENDING", "PROCESSING"})
    assert ("/cancel" in page.body.decode()) == (status == "PENDING")
    assert ("data-live" in page.body.decode()) == (status in {"PENDING", "PROCESSING"})
    assert (f'data-result="{status}"' in page.body.decode()) == (
        "data-live" not in page.body.decode()
    )
    if "PAID" in status or "REFUNDED" in status:
        assert (await api.get(created.json["id"])).json["receipt_id"] in page.body.decode()
        assert f'href="{_path(created)}/receipt"' in page.body.decode()


@pytest.mark.parametrize("reason", _REASONS)
async def test_the_page_explains_why_a_payment_failed(api: Api, reason: str) -> None:
    created = await create_in_status(api, "PROCESSING")
    payment = await payment_of(api, created)
    report = {"state": "declined", "reason": reason}
    assert (await callback(api, payment.session_id, report)).status == 200
    page = await _show(api, created)
    assert _TITLES["FAILED"] in page.body.decode()
    assert _REASONS[reason] in page.body.decode()
    can_retry = reason in {"DECLINED", "TX_REVERTED", "UNKNOWN"}
    assert ("To try again, return to the shop" in page.body.decode()) == can_retry


async def test_an_unknown_status_has_a_generic_title(api: Api) -> None:
    payment = replace(await payment_of(api, await api.create()), status="TRANSFORMED")  # type: ignore[arg-type]
    merchant = (await api.world.service.merchants.get(payment.merchant_id)).merchant
    result = paid_result(payment, merchant, load_language("en"))
    assert result.title == "unknown_state"


async def test_text_from_a_merchant_or_the_query_is_escaped(api: Api) -> None:
    attack = '"><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}'
    await api.world.rows("UPDATE merchant SET name = $1", attack)
    await api.world.rows("UPDATE payment_method SET label = $1", attack)
    texts = dict.fromkeys(("name", "detail", "category", "vendor", "image"), attack)
    created = await api.create(metadata={"product": texts, "order_id": attack})
    odd = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E"
    query = "&".join(f"{name}={odd}" for name in ("country", "lang", "nonce", "embed_origin", "x"))
    page = await _show(api, created, f"?{query}")
    assert page.status == 200
    assert "alert(1)" in page.body.decode()
    scripts = re.findall(r"<script[^>]*>", page.body.decode())
    assert all(re.fullmatch(_OWN_SCRIPT, script) for script in scripts), scripts
    assert "<img src=x" not in page.body.decode()
    for name in ("href", "src", "action", "data-nonce", "value"):
        for value in re.findall(f'{name}="([^"]*)"', page.body.decode()):
            assert "<" not in value
            assert ">" not in value
    assert "<body data-embed" not in page.body.decode()
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", page.body.decode())[0]


async def test_selecting_a_method_redirects_to_the_gateway(api: Api) -> None:
    created = await api.create()
    answer = await _submit(api, created, _form(await _show(api, created)))
    assert (answer.status, answer.headers["Location"]) == (303, "http://gateway.test/pay")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    assert (await payment_of(api, created)).status == "PROCESSING"
    again = await _show(api, created)
    assert 'href="http://gateway.test/pay"' in again.body.decode()
    assert again.body.decode().count('form class="methods"') == 1
    second = await _submit(api, created, _form(again, 1))
    assert second.status == 303
    assert len(api.world.gateway.created) == 2


async def test_a_rejected_selection_shows_the_reason_and_keeps_the_input(
    api: Api,
) -> None:
    created = await api.create()
    fields = _form(await _show(api, created), 1)
    card = fields["method"].partition("|")[0]
    cases = {
        409: (fields | {"method": f"{card}|THB|1.00"}, "The total has changed"),
        404: (fields | {"method": "999|THB|1590.00"}, "Please choose a payment method"),
        400: (fields | {"payer_email": "no<body"}, "enter a valid email address"),
        422: (fields | {"country": "KR"}, "Something went wrong"),
    }
    for status, (form, message) in cases.items():
        page = await _submit(api, created, {"payer_email": "ann@example.com"} | form)
        assert page.status == status
        assert 'role="alert"' in page.body.decode()
        assert message in page.body.decode()
        assert _TITLES["PENDING"] in page.body.decode()
        assert page.headers["Content-Security-Policy"]
        typed = "no&lt;body" if status == 400 else "ann@example.com"
        assert f'value="{typed}"' in page.body.decode()
        assert ('aria-invalid="true"' in page.body.decode()) == (status == 400)
        assert _checked(page) == ([] if status == 404 else [fields["method"]])
    for method in ("", "x", "-1", "1.0", "\u0661", "9" * 19, "<script>", "|", "|||", "1|\0|\0"):
        page = await _submit(api, created, fields | {"method": method})
        assert page.status in {400, 404, 422}, method
        assert "<script>" not in page.body.decode()
    assert (await payment_of(api, created)).status == "PENDING"
    await bring_to(api, created, "CANCELLED")
    page = await _submit(api, created, fields)
    assert page.status == 409
    assert _TITLES["CANCELLED"] in page.body.decode()


@pytest.mark.parametrize("form", ["select", "cancel"])
async def test_the_url_of_a_form_can_be_opened_again(api: Api, form: str) -> None:
    """The address bar shows it with a rejected form, and apps open it in another browser."""
    created = await api.create()
    page = await _show(api, created, f"/{form}?lang=ja")
    assert page.status == 200
    assert '<html lang="ja"' in page.body.decode()
    assert f'action="{_path(created)}/select?lang=ja"' in page.body.decode()
    assert (await payment_of(api, created)).status == "PENDING"


async def test_an_oversized_or_malformed_form_is_rejected(api: Api) -> None:
    created = await api.create()
    path = f"{_path(created)}/select"
    for data, status in (
        (b"a=" + b"x" * 17_000, 413),
        (b"\xff\xfe=1", 400),
        (b"&".join(b"a%d=1" % number for number in range(40)), 400),
        (b"", 404),
        (b"method=%00", 404),
        (b"method=%ff", 404),
        (b"=&=&=", 404),
    ):
        answer = await api.send("POST", path, data=data)
        assert (answer.status, answer.headers["Content-Type"][:9]) == (status, "text/html")
    assert (await payment_of(api, created)).status == "PENDING"


async def test_the_page_reports_an_unresponsive_gateway(api: Api) -> None:
    created = await api.create()
    api.world.gateway.answer_create = lambda _: OutcomeUnknown(detail="planted")
    page = await _submit(api, created, _form(await _show(api, created)))
    assert page.status == 502
    assert "The payment provider did not respond" in page.body.decode()
    assert "planted" not in page.body.decode()


async def test_the_buyer_can_choose_a_country(api: Api) -> None:
    created = await api.create()
    assert '<option value="TH" selected>' in (await _show(api, created)).body.decode()
    page = await _show(api, created, "?country=US")
    assert '<option value="US" selected>' in page.body.decode()
    assert "No payment methods are available" in page.body.decode()
    for odd in (
        "?country=KR",
        "?country=th",
        "?country=",
        "?country=%00",
        "?country=TH&country=US",
    ):
        assert (await _show(api, created, odd)).status == 200, odd


async def _create_taxed(api: Api) -> Answer:
    await api.world.rows("UPDATE merchant SET tax_manager = 'SERVICE'")
    async with api.world.database.transaction() as tx:
        await tax_rates.set_tax_rate(tx, "TH", Decimal("0.07"))
        await tax_rates.set_tax_rate(tx, "PH", Decimal("0.12"))
    return await api.create()


async def test_the_form_selects_the_total_shown_for_a_chosen_country(
    api: Api,
) -> None:
    created = await _create_taxed(api)
    page = await _show(api, created, "?country=TH")
    assert "111.30" in page.body.decode()
    answer = await _submit(api, created, _form(page))
    assert answer.status == 303


async def test_the_form_selects_the_total_shown_without_a_chosen_country(
    api: Api,
) -> None:
    created = await _create_taxed(api)
    answer = await _submit(api, created, _form(await _show(api, created)))
    assert answer.status == 303


async def test_the_form_selects_the_total_shown_for_a_detected_country(
    api: Api,
) -> None:
    await _create_taxed(api)
    created = await api.create(currency="PHP", amount="100.00")
    page = await _show(api, created, headers=_EDGE_HEADERS)
    answer = await _submit(api, created, _form(page), headers=_EDGE_HEADERS)
    assert answer.status == 303


async def test_a_buyer_can_cancel_on_the_page(api: Api) -> None:
    created = await api.create()
    answer = await api.send("POST", f"{_path(created)}/cancel")
    assert (answer.status, answer.headers["Location"]) == (303, _path(created))
    assert (await payment_of(api, created)).status == "CANCELLED"
    again = await api.send("POST", f"{_path(created)}/cancel")
    assert again.status == 409
    assert _TITLES["CANCELLED"] in again.body.decode()


async def test_the_page_of_an_ended_payment_shows_no_error(api: Api) -> None:
    cancelled, expired = await api.create(), await api.create()
    form = _form(await _show(api, cancelled))
    await bring_to(api, expired, "PROCESSING")
    await api.send("POST", f"{_path(cancelled)}/cancel")
    second_cancel = await api.send("POST", f"{_path(cancelled)}/cancel")
    other_tab = await _submit(api, cancelled, form)
    await api.world.move_clock(1800)
    expired_page = await _submit(api, expired, form)
    for page in (second_cancel, other_tab, expired_page):
        assert page.status in {409, 410}
        for word in ("detected", "went wrong", 'role="alert"'):
            assert word not in page.body.decode(), word


async def test_an_internal_error_is_shown_as_a_page(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("planted")

    created = await api.create()
    monkeypatch.setattr("payintent.checkout.visits.cancel_checkout", fail)
    page = await api.send("POST", f"{_path(created)}/cancel")
    assert (page.status, page.headers["Content-Type"]) == (500, "text/html; charset=utf-8")
    assert "We couldn’t complete your request." in page.body.decode()
    assert f'href="{_path(created)}"' in page.body.decode()
    assert b"planted" not in page.body


async def test_a_returning_buyer_changes_nothing_but_triggers_a_gateway_query(
    api: Api,
) -> None:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    before = (await api.get(created.json["id"])).body
    for method, query in (("GET", "?status=PAID&paid=true"), ("POST", "")):
        await api.world.rows(
            "UPDATE session SET inquire_at = clock() + interval '1 hour', returned_at = NULL"
        )
        data = {"status": "PAID"} if method == "POST" else None
        answer = await api.send(method, f"{_path(created)}/return{query}", data=data)
        assert (answer.status, answer.headers["Location"]) == (303, _path(created))
        [row] = await api.world.rows("SELECT inquire_at <= clock() AS soon FROM session")
        assert row["soon"]
    assert (await api.get(created.json["id"])).body == before
    assert (await api.send("GET", f"{_path(await api.create())}/return")).status == 303


async def test_an_unknown_checkout_has_no_page(api: Api) -> None:
    for method, path in (
        ("GET", ""),
        ("POST", "/select"),
        ("POST", "/cancel"),
        ("GET", "/return"),
        ("GET", "/receipt"),
        ("GET", "/qr.svg"),
    ):
        answer = await api.send(method, f"/c/cs_{'0' * 16}{path}")
        assert (answer.status, "find this payment" in answer.body.decode()) == (404, True)
        assert answer.headers["Content-Type"].startswith("text/html")
        assert answer.headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


async def test_the_page_of_a_locked_payment_suggests_a_retry(api: Api) -> None:
    created = await api.create()
    connection = await api.world.open_connection()
    async with connection.transaction():
        await connection.execute("SELECT 1 FROM payment FOR UPDATE")
        page = await api.send("POST", f"{_path(created)}/cancel")
    await connection.close()
    assert (page.status, page.headers["Content-Type"]) == (409, "text/html; charset=utf-8")
    assert "try again in a moment" in page.body.decode()
    assert f'href="{_path(created)}"' in page.body.decode()
    assert page.headers["Retry-After"] == "1"


async def test_an_expired_payment_does_not_link_to_the_gateway(api: Api) -> None:
    created = await create_in_status(api, "PROCESSING")
    assert "http://gateway.test/pay" in (await _show(api, created)).body.decode()
    await api.world.move_clock(1800)
    page = (await _show(api, created)).body.decode()
    assert "http://gateway.test/pay" not in page
    assert "The time to pay has run out. We’re checking" in page
    assert page.count('class="button"') == 1  # only a link that reloads the page
    assert "<button" not in page


@pytest.mark.parametrize("locale", ["en", "th", "ja"])
async def test_countries_are_listed_in_the_order_of_the_language(api: Api, locale: str) -> None:
    page = (await _show(api, await api.create(), f"?lang={locale}")).body.decode()
    countries = re.findall(r'<option value="([A-Z]{2})"', page)
    assert countries == list(load_language(locale).countries)
