"""The hosted checkout: forms and links, whole without JavaScript."""

import re
from decimal import Decimal

import pytest

from payintent.config import Settings
from payintent.storage import taxes
from tests.api.arrange import bring_to, payment_of
from tests.support.world import Answer, Api

_TITLES = {
    "PENDING": "Choose how to pay",
    "PROCESSING": "Continue to payment",
    "PAID": "Your receipt is",
    "FAILED": "The payment was declined",
    "EXPIRED": "The time to pay is over",
    "CANCELLED": "The payment was cancelled",
}
_EDGE = {"CloudFront-Viewer-Country": "PH", "X-Edge-Secret": "edge-secret"}


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
    """Read the hidden fields of one of the page's ways to pay, as a browser would send them."""
    forms = re.findall(
        r'<form method="post" action="[^"]*/select">(.*?)</form>', page.body.decode(), re.DOTALL
    )
    return dict(re.findall(r'name="(\w+)" value="([^"]*)"', forms[number]))


async def _submit(api: Api, created: Answer, fields: dict[str, str], **options: object) -> Answer:
    return await api.send("POST", f"{_path(created)}/select", data=fields, **options)


@pytest.mark.parametrize("status", _TITLES)
async def test_the_page_tells_how_each_payment_stands(api: Api, status: str) -> None:
    created = await api.create()
    await bring_to(api, created, status)
    page = await _show(api, created)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert _TITLES[status] in page.body.decode()
    assert "Pay Nimbus Books" in page.body.decode()
    assert "1590.00" in page.body.decode()
    assert ("/select" in page.body.decode()) == (status in {"PENDING", "PROCESSING"})
    assert ("/cancel" in page.body.decode()) == (status == "PENDING")
    if status == "PAID":
        assert (await api.get(created.json["id"])).json["receipt_id"] in page.body.decode()


async def test_a_merchants_texts_cannot_become_markup(api: Api) -> None:
    attack = '"><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}'
    await api.world.rows("UPDATE merchant SET name = $1", attack)
    await api.world.rows("UPDATE payment_method SET label = $1", attack)
    texts = dict.fromkeys(("name", "detail", "category", "vendor", "image"), attack)
    created = await api.create(metadata={"product": texts, "order_id": attack})
    page = await _show(api, created, "?country=%3Cscript%3E&x=%22onload")
    assert page.status == 200
    assert "alert(1)" in page.body.decode()
    assert "<script" not in page.body.decode()
    assert "<img" not in page.body.decode()
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", page.body.decode())[0]


async def test_the_page_may_load_nothing_and_be_framed_by_nobody(api: Api) -> None:
    created = await api.create()
    page = await _show(api, created)
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in page.headers["Content-Security-Policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'self' http://gateway.test"
    assert "script-src" not in policy
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Cache-Control"] == "no-store"
    assert "noindex" in page.headers["X-Robots-Tag"]
    assert "Access-Control-Allow-Origin" not in page.headers
    assert "<script" not in page.body.decode()
    await bring_to(api, created, "CANCELLED")
    ended = await _show(api, created)
    assert "form-action 'self'" in ended.headers["Content-Security-Policy"]
    assert "gateway.test" not in ended.headers["Content-Security-Policy"]


async def test_a_buyer_who_chooses_goes_on_to_the_gateway(api: Api) -> None:
    created = await api.create()
    answer = await _submit(api, created, _form(await _show(api, created)))
    assert (answer.status, answer.headers["Location"]) == (303, "http://gateway.test/pay")
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    assert (await payment_of(api, created)).status == "PROCESSING"
    again = await _show(api, created)
    assert 'href="http://gateway.test/pay"' in again.body.decode()
    other = await _submit(api, created, _form(again, 1))
    assert other.status == 303
    assert len(api.world.gateway.created) == 2


async def test_a_refused_choice_shows_why_with_its_status(api: Api) -> None:
    created = await api.create()
    fields = _form(await _show(api, created))
    wanted = {
        409: fields | {"expected_total_amount": "1.00"},
        404: fields | {"payment_method_id": "999"},
        400: fields | {"payer_email": "nobody"},
        422: fields | {"country": "KR"},
    }
    for status, sent in wanted.items():
        page = await _submit(api, created, sent)
        assert page.status == status
        assert 'role="alert"' in page.body.decode()
        assert _TITLES["PENDING"] in page.body.decode()
        assert page.headers["Content-Security-Policy"]
    for method in ("", "x", "-1", "1.0", "\u0661", "9" * 19, "<script>"):
        page = await _submit(api, created, fields | {"payment_method_id": method})
        assert page.status == 404, method
        assert "<script" not in page.body.decode()
    assert (await payment_of(api, created)).status == "PENDING"
    await bring_to(api, created, "CANCELLED")
    page = await _submit(api, created, fields)
    assert page.status == 409
    assert _TITLES["CANCELLED"] in page.body.decode()


async def test_a_form_that_is_too_large_or_unreadable_is_refused(api: Api) -> None:
    created = await api.create()
    path = f"{_path(created)}/select"
    for data, status in (
        (b"a=" + b"x" * 17_000, 413),
        (b"\xff\xfe=1", 400),
        (b"&".join(b"a%d=1" % number for number in range(40)), 400),
        (b"", 404),
        (b"payment_method_id=%00", 404),
        (b"payment_method_id=%ff", 404),
        (b"=&=&=", 404),
    ):
        assert (await api.send("POST", path, data=data)).status == status, data[:20]
    assert (await payment_of(api, created)).status == "PENDING"


async def test_a_gateway_that_is_away_is_told_on_the_page(api: Api) -> None:
    from payintent.domain.gateway import Unknown

    created = await api.create()
    api.world.gateway.answer_create = lambda _: Unknown(detail="planted")
    page = await _submit(api, created, _form(await _show(api, created)))
    assert page.status == 502
    assert 'role="alert"' in page.body.decode()
    assert "planted" not in page.body.decode()


async def test_the_buyers_country_is_chosen_on_the_page(api: Api) -> None:
    created = await api.create()
    assert '<option value="TH" selected>' in (await _show(api, created)).body.decode()
    page = await _show(api, created, "?country=US")
    assert '<option value="US" selected>' in page.body.decode()
    assert "no way to pay" in page.body.decode()
    for odd in (
        "?country=KR",
        "?country=th",
        "?country=",
        "?country=%00",
        "?country=TH&country=US",
    ):
        assert (await _show(api, created, odd)).status == 200, odd


async def _taxed(api: Api) -> Answer:
    await api.world.rows("UPDATE merchant SET tax_manager = 'SERVICE'")
    async with api.world.service.database.transaction() as tx:
        await taxes.set_tax_rate(tx, "TH", Decimal("0.07"))
        await taxes.set_tax_rate(tx, "PH", Decimal("0.12"))
    return await api.create()


async def test_what_the_page_shows_for_a_chosen_country_is_what_its_form_selects(
    api: Api,
) -> None:
    created = await _taxed(api)
    page = await _show(api, created, "?country=TH")
    assert "111.30" in page.body.decode()
    answer = await _submit(api, created, _form(page))
    assert answer.status == 303


async def test_what_the_page_shows_without_a_chosen_country_is_what_its_form_selects(
    api: Api,
) -> None:
    created = await _taxed(api)
    answer = await _submit(api, created, _form(await _show(api, created)))
    assert answer.status == 303


async def test_what_the_page_shows_where_the_buyer_seems_to_be_is_what_its_form_selects(
    api: Api,
) -> None:
    await _taxed(api)
    created = await api.create(currency="PHP", amount="100.00")
    page = await _show(api, created, headers=_EDGE)
    answer = await _submit(api, created, _form(page), headers=_EDGE)
    assert answer.status == 303


async def test_a_buyer_cancels_on_the_page(api: Api) -> None:
    created = await api.create()
    answer = await api.send("POST", f"{_path(created)}/cancel")
    assert (answer.status, answer.headers["Location"]) == (303, created.json["checkout_url"])
    assert (await payment_of(api, created)).status == "CANCELLED"
    again = await api.send("POST", f"{_path(created)}/cancel")
    assert again.status == 409
    assert _TITLES["CANCELLED"] in again.body.decode()


async def test_a_buyer_who_comes_back_changes_nothing_and_the_gateway_is_asked_soon(
    api: Api,
) -> None:
    created = await api.create()
    await bring_to(api, created, "PROCESSING")
    before = (await api.get(created.json["id"])).body
    for method, query in (("GET", "?status=PAID&paid=true"), ("POST", "")):
        await api.world.rows("UPDATE session SET inquire_at = clock() + interval '1 hour'")
        data = {"status": "PAID"} if method == "POST" else None
        answer = await api.send(method, f"{_path(created)}/return{query}", data=data)
        assert (answer.status, answer.headers["Location"]) == (303, created.json["checkout_url"])
        [row] = await api.world.rows("SELECT inquire_at <= clock() AS soon FROM session")
        assert row["soon"]
    assert (await api.get(created.json["id"])).body == before
    assert (await api.send("GET", f"{_path(await api.create())}/return")).status == 303


async def test_an_unknown_checkout_has_no_page(api: Api) -> None:
    for method, path in (("GET", ""), ("POST", "/select"), ("POST", "/cancel"), ("GET", "/return")):
        answer = await api.send(method, f"/c/cs_{'0' * 16}{path}")
        assert (answer.status, "no such checkout" in answer.body.decode()) == (404, True)
        assert answer.headers["Content-Type"].startswith("text/html")
        assert answer.headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


async def test_the_pages_own_files_are_served_and_no_others(api: Api) -> None:
    style = await api.send("GET", "/c/static/checkout.css")
    assert (style.status, style.headers["Content-Type"]) == (200, "text/css; charset=utf-8")
    assert style.headers.getall("Cache-Control") == ["public, max-age=3600"]
    assert style.headers["X-Content-Type-Options"] == "nosniff"
    for name in ("checkout.html", "..%2fconfig.py", "%2e%2e", "x", "checkout.css%00", "."):
        assert (await api.send("GET", f"/c/static/{name}")).status == 404, name


async def test_a_page_whose_payment_is_held_by_somebody_else_says_so_to_a_person(api: Api) -> None:
    created = await api.create()
    held = await api.world.other_connection()
    async with held.transaction():
        await held.execute("SELECT 1 FROM payment FOR UPDATE")
        page = await api.send("POST", f"{_path(created)}/cancel")
    await held.close()
    assert (page.status, page.headers["Content-Type"]) == (409, "text/html; charset=utf-8")
    assert "please try again in a moment" in page.body.decode()
    assert page.headers["Retry-After"] == "1"
