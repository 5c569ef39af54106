"""The portal's pages: payments, refunds, replays, keys and the catalog."""

import base64
import re
from urllib.parse import quote
from uuid import uuid4

import pytest

from payintent.accounting.statements_operations import ExportStatement, ShowStatement
from payintent.core import ids
from payintent.core.errors import RefusedError
from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.members.model import MemberRole
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.operations import SetCallbackUrl
from payintent.merchants.restrictions import AddRestriction
from payintent.operators.operation import Actor
from payintent.portal.payments import describe_requester
from payintent.refunds.operations import RefundPayment
from payintent.webhooks import outbox_store
from payintent.webhooks.operations import ResendEvent
from payintent.webhooks.outbox_store import AttemptRecord
from tests.payment_links.link_setup import post_link
from tests.portal.arrange import close_a_day
from tests.portal.member_browser import Person, member, words
from tests.refunds.requests import create_paid, process_refunds
from tests.refunds.requests import post_refund as refund
from tests.support.arrange import payment_of
from tests.support.fakes import captured
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full


@pytest.fixture
async def finance(api: Api) -> Person:
    return await member(api, MemberRole.FINANCE)


@pytest.fixture
async def developer(api: Api) -> Person:
    return await member(api)


async def _timeline_text(person: Person, created: Answer) -> str:
    answer = await person.get(f"/merchant/payments/{created.json['id']}")
    assert answer.status == 200
    return words(answer)


async def _event_id(api: Api, created: Answer) -> str:
    payment = await payment_of(api, created)
    [row] = await api.world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    return str(row["id"])


async def test_a_payment_is_found_by_any_of_its_identifiers(api: Api, finance: Person) -> None:
    created = await create_paid(api, metadata={"order_id": "A-1009"}, payer_uid="buyer-77")
    await create_paid(api, metadata={"order_id": "B-1"})
    refund_id = (await refund(api, created)).json["id"]
    identifiers = (created.json["id"], created.json["checkout_id"], refund_id, "A-1009", "buyer-77")
    for text in (*identifiers, await _event_id(api, created), f"cap-{created.json['id']}"):
        page = (await finance.get(f"/merchant/payments?q={text}")).body.decode()
        assert page.count('href="/merchant/payments/pay_') == 1, text
        assert created.json["id"] in page


async def test_filters_are_kept_in_the_urls_of_further_pages(api: Api, finance: Person) -> None:
    payment_ids = [(await api.create(payer_uid="buyer-77")).json["id"] for _ in range(27)]
    await api.create(payer_uid="somebody-else")
    first = (
        await finance.get("/merchant/payments?payer_uid=buyer-77&status=PENDING")
    ).body.decode()
    more = first.partition('href="?')[2].partition('"')[0].replace("&amp;", "&")
    assert "payer_uid=buyer-77" in more
    second = (await finance.get(f"/merchant/payments?{more}")).body.decode()
    pages = [[item for item in payment_ids if item in page] for page in (first, second)]
    assert [len(page) for page in pages] == [25, 2]
    assert set(pages[0] + pages[1]) == set(payment_ids)
    assert "somebody-else" not in first + second


async def test_the_filter_form_is_shown_on_request_or_if_a_filter_is_active(
    finance: Person,
) -> None:
    form = 'class="filters"'
    first = (await finance.get("/merchant/payments")).body.decode()
    assert form not in first
    assert 'href="/merchant/payments?filters="' in first
    for query in ("filters=", "status=PAID", "status=GONE"):
        assert form in (await finance.get(f"/merchant/payments?{query}")).body.decode(), query


async def test_search_results_are_paginated(api: Api, finance: Person) -> None:
    payment_ids = [(await api.create(payer_uid="buyer 77&x=1")).json["id"] for _ in range(26)]
    first = (await finance.get(f"/merchant/payments?q={quote('buyer 77&x=1')}")).body.decode()
    more = first.partition('href="?')[2].partition('"')[0].replace("&amp;", "&")
    second = (await finance.get(f"/merchant/payments?{more}")).body.decode()
    assert [sum(item in page for item in payment_ids) for page in (first, second)] == [25, 1]


async def test_date_filters_cover_whole_days_in_utc(api: Api, finance: Person) -> None:
    created = await api.create()
    day = created.json["created_at"][:10]
    for query, is_listed in (
        (f"created_from={day}&created_to={day}", True),
        (f"created_to={day}", True),
        (f"created_from={int(day[:4]) + 1}{day[4:]}".replace("02-29", "02-28"), False),
    ):
        page = await finance.get(f"/merchant/payments?{query}")
        assert (created.json["id"] in page.body.decode()) is is_listed, query


@pytest.mark.parametrize(
    "query",
    [
        "status=GONE",
        "currency=XXX",
        "created_from=yesterday",
        "created_to=9999-12-31",
        "cursor=x",
        "payer_uid=" + "x" * 300,
        "q=" + "x" * 301,
        "q=x&before=y",
    ],
)
async def test_an_invalid_filter_is_reported(finance: Person, query: str) -> None:
    answer = await finance.get(f"/merchant/payments?{query}")
    assert answer.status in {400, 404, 422}
    assert 'class="problem" role="alert"' in answer.body.decode()


async def test_a_timeline_shows_no_internal_data_of_the_operator(api: Api, finance: Person) -> None:
    """Accounts, gateway references and responses, rules, operators and notes are hidden."""
    world = api.world
    rule = AddFraudRule(kind=FraudRuleKind.PAYER, value="buyer-9", merchant_id=world.merchant_id)
    await world.perform(rule)
    created = await create_paid(api)
    payment = await payment_of(api, created)
    snapshot = await world.read(payment)
    assert snapshot.session is not None
    await world.report(payment, snapshot.session.id, captured(1, reference="second-capture"))
    actor = Actor("Olga the operator", "a secret reason")
    operation = RefundPayment(payment_id=created.json["id"], amount="1.00", reason="so it is")
    await world.service.run_operation(operation, actor)
    await world.service.run_operation(
        ResendEvent(event_id=ids.parse_id(ids.PAYMENT, "") or await _event_uuid(api, created)),
        actor,
    )
    text = await _timeline_text(finance, created)
    for expected in (
        "Created",
        "Payment method selected",
        "Money received",
        "Paid",
        "payment.completed",
    ):
        assert expected in text
    assert "DOUBLE_PAYMENT" in text
    assert "1.00 THB, by your payment service provider, so it is" in text
    body = (await finance.get(f"/merchant/payments/{created.json['id']}")).body.decode()
    session = ids.format_id(ids.SESSION, snapshot.session.id)
    for hidden in ("Olga", "secret reason", "second-capture", "cap-pay", session, "callback"):
        assert hidden not in body, hidden
    assert f"account {world.account_id}" not in body


async def _event_uuid(api: Api, created: Answer) -> object:
    payment = await payment_of(api, created)
    [row] = await api.world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    return row["id"]


@pytest.mark.parametrize(
    ("who", "description"),
    [
        ("merchant:7:abcd1234", "API key abcd1234"),
        ("merchant:7", "an API key"),
        ("merchant:7:dee@shop.test", "dee@shop.test"),
        ("policy:auto_refund", "the automatic refund policy"),
        ("Olga", "your payment service provider"),
        ("cli:root", "your payment service provider"),
        ("merchant", "an API key"),
    ],
)
def test_refund_requesters_are_named_only_if_they_belong_to_the_merchant(
    who: str, description: str
) -> None:
    assert describe_requester(who) == description


async def test_finance_can_request_a_refund_idempotently(api: Api, finance: Person) -> None:
    created = await create_paid(api)
    path = f"/merchant/payments/{created.json['id']}"
    key = str(uuid4())
    for _ in range(2):  # if a form is sent twice, only one refund is requested
        answer = await finance.post(f"{path}/refunds", amount="90.00", reason="a page", key=key)
        assert (answer.status, answer.headers["Location"]) == (303, path)
    [row] = await api.world.rows("SELECT amount, reason, step, requested_by FROM refund")
    requested_by = f"merchant:{api.world.merchant_id}:finance@shop.test"
    assert (row["reason"], row["step"], row["requested_by"]) == ("a page", "queued", requested_by)
    await process_refunds(api.world)
    text = await _timeline_text(finance, created)
    assert "PARTIALLY_REFUNDED" in text
    assert "by finance@shop.test" in text
    assert "90.00 THB" in words(await finance.get("/merchant/refunds"))


async def test_a_refund_without_an_amount_refunds_the_remaining_amount(
    api: Api, finance: Person
) -> None:
    created = await create_paid(api)
    path = f"/merchant/payments/{created.json['id']}/refunds"
    assert (await finance.post(path, key=str(uuid4()))).status == 303
    await process_refunds(api.world)
    assert (await payment_of(api, created)).status == "REFUNDED"


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"amount": "1590.01"}, 409, "1590"),
        ({"amount": "0"}, 422, "amount"),
        ({"amount": "x"}, 400, "amount"),
        ({"amount": "1", "reason": "x" * 501}, 400, "reason"),
        ({"amount": "1", "destination": "0x"}, 422, "destination"),
        ({"amount": "1", "key": "x"}, 400, "Reload the page"),
    ],
)
async def test_an_invalid_refund_form_is_explained_and_keeps_its_input(
    api: Api, finance: Person, fields: dict[str, str], status: int, message: str
) -> None:
    created = await create_paid(api)
    path = f"/merchant/payments/{created.json['id']}/refunds"
    answer = await finance.post(path, **{"key": str(uuid4()), "reason": "typed"} | fields)
    assert answer.status == status, words(answer)
    page = answer.body.decode()
    assert message in page.partition('role="alert"')[2].partition("</p>")[0]
    assert f'value="{fields["amount"]}"' in page
    assert await api.world.rows("SELECT FROM refund") == []


async def test_the_urls_of_forms_that_show_errors_can_be_opened_again(
    api: Api, finance: Person, developer: Person
) -> None:
    created = await create_paid(api)
    link = (await post_link(api)).json["id"]
    paths = (
        f"/merchant/payments/{created.json['id']}/refunds",
        f"/merchant/payment-links/{link}/mail",
        *("/merchant/settings/save", "/merchant/settings/secret", "/merchant/settings/test-event"),
        "/merchant/passkeys",
    )
    for person in (finance, developer):
        for path in paths:
            answer = await person.get(path)
            assert answer.status == 200, path
            assert "<h1>" in answer.body.decode()
    assert await api.world.rows("SELECT FROM refund") == []


async def test_a_reused_refund_form_is_a_conflict_and_can_be_resubmitted(
    api: Api, finance: Person
) -> None:
    created = await create_paid(api)
    path = f"/merchant/payments/{created.json['id']}/refunds"
    used = str(uuid4())
    assert (await finance.post(path, amount="90.00", key=used)).status == 303
    conflict = await finance.post(path, amount="80.00", key=used)
    assert conflict.status == 409
    assert "You have already requested a different refund with this form" in words(conflict)
    [new] = re.findall(r'name="key" value="([^"]+)"', conflict.body.decode())
    assert (await finance.post(path, amount="80.00", key=new)).status == 303
    rows = await api.world.rows("SELECT amount FROM refund ORDER BY id")
    assert len(rows) == 2


async def test_an_unpaid_payment_has_no_refund_form(api: Api, finance: Person) -> None:
    created = await api.create()
    assert "Refund this payment" not in await _timeline_text(finance, created)
    path = f"/merchant/payments/{created.json['id']}/refunds"
    assert (await finance.post(path, key=str(uuid4()))).status == 409


async def test_an_event_is_shown_with_its_attempts_and_responses(
    api: Api, developer: Person
) -> None:
    created = await create_paid(api)
    event_id = await _event_uuid(api, created)
    attempt = AttemptRecord(
        id=uuid4(),
        event_id=event_id,  # type: ignore[arg-type]
        number=1,
        url="https://shop.test/hooks",
        outcome="refused",
        status=500,
        detail="HTTP 500",
        answer="<b>a stack trace</b>",
        duration_ms=12,
        delivered=False,
        next_wait_s=None,
    )
    await outbox_store.record(api.world.database, [attempt])
    page = await developer.get(f"/merchant/events/{event_id}")
    for expected in ("https://shop.test/hooks", "HTTP 500", "<b>a stack trace</b>", '"payment"'):
        assert expected in words(page).replace("<b>", "<b>"), expected
    assert "&lt;b&gt;a stack trace" in page.body.decode()


async def test_a_replay_resends_an_event_and_audits_the_member(api: Api, developer: Person) -> None:
    created = await create_paid(api)
    event_id = await _event_id(api, created)
    answer = await developer.post(f"/merchant/events/{event_id}/replay")
    assert answer.headers["Location"] == f"/merchant/events/{event_id}?replayed=1"
    assert "resent" in words(await developer.get(answer.headers["Location"]))
    [row] = await api.world.rows("SELECT state FROM delivery")
    assert row["state"] == "pending"
    [entry] = await api.world.rows(
        "SELECT who, why, merchant_id FROM audit WHERE action = 'webhooks.replay'"
    )
    who = f"merchant:{api.world.merchant_id}:developer@shop.test"
    assert tuple(entry.values()) == (who, "in the merchant portal", api.world.merchant_id)


async def test_events_are_filtered_by_state_and_paginated(api: Api, developer: Person) -> None:
    for _ in range(26):
        created = await api.create()
        path = f"/v1/payments/{created.json['id']}/cancel"
        assert (await api.send("POST", path, headers=api.bearer())).status == 200
    first = (await developer.get("/merchant/events?state=skipped")).body.decode()
    more = first.partition('href="?')[2].partition('"')[0].replace("&amp;", "&")
    second = (await developer.get(f"/merchant/events?{more}")).body.decode()
    assert [page.count("<tr>") - 1 for page in (first, second)] == [25, 1]
    assert "No events" in words(await developer.get("/merchant/events?state=dead"))
    assert (await developer.get("/merchant/events?state=gone")).status == 400


async def test_a_developer_can_revoke_a_live_key(api: Api, developer: Person) -> None:
    public_id = api.world.api_key.split("_")[2]
    page = words(await developer.get("/merchant/keys"))
    assert f"sk_live_{public_id}_…" in page
    assert api.world.api_key not in page
    assert " Revoked " not in page
    assert (await developer.post(f"/merchant/keys/{public_id}/revoke")).status == 303
    assert (await api.create()).status == 401
    assert " Revoked " in words(await developer.get("/merchant/keys"))
    [entry] = await api.world.rows("SELECT who FROM audit WHERE action = 'key.revoke'")
    assert entry["who"] == f"merchant:{api.world.merchant_id}:developer@shop.test"


async def test_the_keys_of_a_test_merchant_are_shown_as_test_keys(api: Api) -> None:
    issued = await api.world.perform(IssueApiKey(merchant_id=api.world.merchant_id, test=True))
    person = await member(api, merchant_id=issued.merchant_id)
    page = words(await person.get("/merchant/keys"))
    assert f"sk_test_{issued.api_key.split('_')[2]}_…" in page
    assert "sk_live_" not in page


async def test_cases_match_the_api_and_can_be_filtered(api: Api, finance: Person) -> None:
    created = await create_paid(api)
    payment = await payment_of(api, created)
    snapshot = await api.world.read(payment)
    assert snapshot.session is not None
    await api.world.report(payment, snapshot.session.id, captured(1, reference="second"))
    [case] = (await api.send("GET", "/v1/cases", headers=api.bearer())).json["data"]
    page = words(await finance.get("/merchant/cases?status=OPEN&kind=DOUBLE_PAYMENT"))
    assert case["id"] in page
    assert f"{case['amount']} {case['currency']}" in page
    assert "No cases" in words(await finance.get("/merchant/cases?kind=DISPUTE"))
    assert (await finance.get("/merchant/cases?kind=x")).status == 400


async def test_refunds_and_cases_show_their_order_and_can_be_filtered_by_it(
    api: Api, finance: Person
) -> None:
    for order_id in ("A-1001", "A-1002"):
        created = await create_paid(api, metadata={"order_id": order_id})
        await refund(api, created, amount="1.00")
        payment = await payment_of(api, created)
        snapshot = await api.world.read(payment)
        assert snapshot.session is not None
        await api.world.report(payment, snapshot.session.id, captured(1, reference=order_id))
    for path in ("/merchant/cases", "/merchant/refunds"):
        assert "A-1001" in words(await finance.get(path))
        rows = words(await finance.get(f"{path}?order_id=A-1002"))
        assert created.json["id"] in rows
        assert "A-1001" not in rows
        assert created.json["id"] not in words(await finance.get(f"{path}?order_id=A-9"))
        assert (await finance.get(f"{path}?order_id=%00")).status == 200


async def test_the_catalog_can_be_previewed_for_each_country(api: Api, finance: Person) -> None:
    world = api.world
    page = words(await finance.get("/merchant/catalog?country=TH"))
    assert "THB" in page
    assert "Card" in page
    await world.perform(AddRestriction(type="CRYPTO", country="TH"))  # type: ignore[arg-type]
    assert "Tokens are not available in this country" in words(
        await finance.get("/merchant/catalog?country=TH")
    )
    assert "Tokens are not" not in words(await finance.get("/merchant/catalog?country=JP"))
    assert (await finance.get("/merchant/catalog?country=XX")).status == 400
    empty_merchant = await world.add_merchant(methods="none")
    spy = await member(api, MemberRole.FINANCE, "x@other.test", empty_merchant.merchant.id)
    assert "You cannot accept payments yet" in words(await spy.get("/merchant/catalog"))


async def test_pages_cannot_be_cached_or_framed(api: Api, finance: Person) -> None:
    for path in ("/merchant/payments", "/merchant/sign-in", "/merchant/payments/x", "/merchant"):
        headers = (await finance.get(path)).headers
        assert headers["Cache-Control"] == "no-store", path
        assert headers["Referrer-Policy"] == "no-referrer"
    policy = (await finance.get("/merchant/payments")).headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy


async def test_user_supplied_text_is_escaped(api: Api, finance: Person) -> None:
    markup = "<script>alert(1)</script>"
    created = await api.create(payer_uid=markup, metadata={"order_id": markup})
    for path in (
        "/merchant/payments",
        f"/merchant/payments?q={quote(markup)}",
        f"/merchant/payments/{created.json['id']}",
    ):
        page = (await finance.get(path)).body.decode()
        assert "&lt;script&gt;alert(1)" in page
        assert markup not in page


async def test_pages_except_overview_and_settings_do_not_show_the_callback_url(
    api: Api, developer: Person
) -> None:
    """These pages have neither the URL nor a form for it."""
    operation = SetCallbackUrl(
        merchant_id=api.world.merchant_id, callback_url="https://93.184.216.34/hooks"
    )
    await api.world.perform(operation)
    for page in ("access", "keys", "events", "payments", "calls", "catalog", "cases", "refunds"):
        body = (await developer.get(f"/merchant/{page}")).body.decode()
        assert "93.184.216.34" not in body
        assert "callback_url" not in body


async def test_finance_can_view_the_balance_and_daily_statements(api: Api, finance: Person) -> None:
    assert "No statements" in words(await finance.get("/merchant/statements"))
    statement_id = await close_a_day(api.world)
    created = await create_paid(api)
    text = words(await finance.get("/merchant/statements?currency=THB"))
    assert text.count("12,345.67") == 2, "in the adjustment, and in the closing balance"
    [balance] = (await api.send("GET", "/v1/balance", headers=api.bearer())).json["data"]
    assert f"{float(balance['amount']):,.2f} THB" in text
    page = words(await finance.get(f"/merchant/statements/{statement_id}"))
    assert "Opening 0.00" in page
    assert "Closing 12,345.67" in page
    assert "adjustments adjustment" in page
    assert created.json["id"] not in page
    assert words(await finance.get("/merchant/statements?currency=BTC")).count("must be one of")


async def test_statement_lines_can_be_downloaded_as_csv(api: Api, finance: Person) -> None:
    statement_id = await close_a_day(api.world)
    answer = await finance.get(f"/merchant/statements/{statement_id}/lines.csv")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert answer.headers["Cache-Control"] == "no-store"
    exported = await api.world.perform(ExportStatement(statement_id=statement_id))
    assert answer.body.decode() == exported.text + "\r\n"
    assert ',"12345.67"' in exported.text
    day = (await api.world.perform(ShowStatement(statement_id=statement_id))).day
    name = f'filename="statement-{day}-THB.csv"'
    assert name in answer.headers["Content-Disposition"]


async def test_a_statement_can_be_downloaded_as_pdf_unless_it_is_too_long(
    api: Api, finance: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement_id = await close_a_day(api.world, adjustments=3)
    path = f"/merchant/statements/{statement_id}"
    assert "Download as PDF" in words(await finance.get(path))
    answer = await finance.get(f"{path}/statement.pdf")
    assert answer.headers["Content-Type"] == "application/pdf"
    assert answer.headers["Cache-Control"] == "no-store"
    exported = await api.world.perform(ExportStatement(statement_id=statement_id, format="pdf"))
    assert answer.body == base64.b64decode(exported.text)
    assert answer.body.startswith(b"%PDF-")
    monkeypatch.setattr("payintent.accounting.statements_operations.PDF_LINES_MAX", 2)
    assert "Download as PDF" not in words(await finance.get(path))
    with pytest.raises(RefusedError, match="a PDF has at most 2 lines"):
        await api.world.perform(ExportStatement(statement_id=statement_id, format="pdf"))


async def test_statements_are_paginated(api: Api) -> None:
    world = api.world
    for day in range(26):
        await world.move_clock(day * 24 * 3600)
        await close_a_day(world)
    finance = await member(api, MemberRole.FINANCE)
    first = (await finance.get("/merchant/statements")).body.decode()
    more = first.partition('href="?')[2].partition('"')[0].replace("&amp;", "&")
    second = (await finance.get(f"/merchant/statements?{more}")).body.decode()
    assert [page.count('href="/merchant/statements/stmt_') for page in (first, second)] == [25, 1]


async def test_statement_lines_are_paginated(api: Api, finance: Person) -> None:
    path = f"/merchant/statements/{await close_a_day(api.world, adjustments=101)}"
    first = (await finance.get(path)).body.decode()
    more = first.partition('href="?')[2].partition('"')[0].replace("&amp;", "&")
    second = (await finance.get(f"{path}?{more}")).body.decode()
    assert [page.count('data-label="Net"') for page in (first, second)] == [100, 1]
