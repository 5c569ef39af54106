import json
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest

from payintent.core import ids
from payintent.core.method_brands import BRANDS_BY_CODE
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    DisputedFunds,
    DisputeReport,
    DisputeState,
    FailureReason,
    GatewayAccount,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    OutcomeUnknown,
    SessionCreated,
    SessionRejected,
    SessionReport,
    VerifiedCallback,
)
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.gateways.twoc2p.messages import BRAND_CHANNELS, invoice_no
from payintent.gateways.twoc2p.response_codes import (
    DEVIATIONS,
    FAILURES,
    NOT_FOUND,
    STATES,
    UNDECIDED,
    UNSETTLED,
)
from tests.gateways.raw_server import reply, serve_responses
from tests.sandbox.simulator.simulator_setup import Merchant
from tests.sandbox.twoc2p.emulator_setup import (
    APPROVED,
    IN_PROGRESS,
    MERCHANT,
    RETURN_URL,
    SECRET,
    SILENT,
    Shop,
    envelope,
    jwt,
    opened,
    pair,
    running_twoc2p,
)

MINUTE = 60.0
#: 2C2P's published table of payment response codes.
PUBLISHED = """
    0000 0001 0003 0004 0999 2001 2002 2003 4000 4001 4002 4003 4004 4005 4006 4007 4008 4009
    4010 4011 4012 4013 4014 4015 4016 4017 4018 4019 4020 4021 4022 4023 4024 4025 4026 4027
    4028 4029 4030 4031 4032 4033 4034 4035 4036 4037 4038 4039 4040 4041 4042 4043 4044 4045
    4046 4047 4048 4049 4050 4051 4052 4053 4054 4055 4056 4057 4058 4059 4060 4061 4062 4063
    4064 4065 4066 4067 4068 4069 4070 4071 4072 4073 4074 4075 4076 4077 4078 4079 4080 4081
    4082 4083 4084 4085 4086 4087 4088 4089 4090 4091 4092 4093 4094 4095 4096 4097 4098 4099
    4110 4120 4121 4122 4130 4131 4132 4140 4200 4201 4202 4203 4204 4205 4208 4209 5002 5003
    5004 5005 5006 5007 5008 5009 5010 5011 5012 5013 5014 5015 5016 5017 5018 5019 5998 6012
    6101 6102 6103 6104 6105 6106 6107 6108 6109 6110 7012 9004 9005 9006 9007 9008 9009 9010
    9012 9013 9014 9015 9016 9017 9035 9037 9038 9039 9040 9041 9042 9057 9058 9059 9060 9078
    9080 9088 9089 9090 9091 9092 9093 9094 9095 9100 9101 9102 9103 9104 9105 9106 9107 9108
    9109 9110 9202 9900 9901 9902 9903 9904 9905 9906 9907 9908 9909 9990 9991 9992 9993 9994
    9995 9996 9997 9998 9999
""".split()  # noqa: SIM905 - as published, in lines


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with running_twoc2p() as url:
        yield url


@pytest.fixture
async def buyer(url: str, merchant: Merchant) -> AsyncGenerator[Shop]:
    async with aiohttp.ClientSession() as http:
        yield Shop(http, url, merchant.url)


@pytest.fixture
async def http() -> AsyncGenerator[GatewayHttpClient]:
    http = GatewayHttpClient(timeout_s=10, response_bytes_max=256 * 1024)
    yield http
    await http.close()


@pytest.fixture
def gateway(http: GatewayHttpClient) -> TwoC2pGateway:
    return TwoC2pGateway(http)


@pytest.fixture
def account(url: str) -> GatewayAccount:
    return account_at(url)


def account_at(url: str, **credentials: str) -> GatewayAccount:
    defaults = {
        "merchant_id": MERCHANT,
        "secret_key": SECRET,
        "merchant_private_key": pair(MERCHANT)[0],
        "gateway_public_key": pair("gateway")[1],
        "utc_offset": "+08:00",
    }
    return GatewayAccount(id=1, provider="2c2p", base_url=url, credentials=defaults | credentials)


@pytest.fixture
def order(merchant: Merchant) -> GatewaySessionRequest:
    now = datetime.now(UTC)
    return GatewaySessionRequest(
        session_id=uuid4(),
        amount_minor=159_000,
        currency="THB",
        kind="card",
        country="TH",
        description="A book",
        opened_at=now,
        expires_at=now + timedelta(minutes=30),
        return_url=RETURN_URL,
        callback_url=merchant.url,
    )


def ref(order: GatewaySessionRequest, **changes: Any) -> GatewaySessionRef:
    defaults = GatewaySessionRef(
        session_id=order.session_id,
        reference=f"{MERCHANT}.{invoice_no(order.session_id)}",
        amount_minor=order.amount_minor,
        currency=order.currency,
        opened_at=order.opened_at,
    )
    return replace(defaults, **changes)


async def create(
    gateway: TwoC2pGateway, account: GatewayAccount, order: GatewaySessionRequest
) -> str:
    session = await gateway.create_session(account, order)
    assert isinstance(session, SessionCreated), session
    return session.next_action["redirect"]["url"]


async def order_claims(
    gateway: TwoC2pGateway, account: GatewayAccount, order: GatewaySessionRequest
) -> dict[str, Any]:
    """Return the claims of a creation request."""
    requests: list[bytes] = []
    async with serve_responses(reply("200 OK", b"{}"), requests) as server_url:
        await gateway.create_session(replace(account, base_url=server_url), order)
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /payment/4.3/paymentToken HTTP/1.1\r\n")
    assert b"Content-Type: application/json\r\n" in head
    return opened(body)


async def test_an_order_has_the_documented_claims(
    gateway: TwoC2pGateway, account: GatewayAccount, order: GatewaySessionRequest
) -> None:
    name = ids.format_id(ids.SESSION, order.session_id)
    assert await order_claims(gateway, account, order) == {
        "merchantID": MERCHANT,
        "invoiceNo": name[-20:],
        "idempotencyID": name,
        "description": "A book",
        "amount": 1590.0,
        "currencyCode": "THB",
        "frontendReturnUrl": RETURN_URL,
        "backendReturnUrl": order.callback_url,
        "userDefined1": name,
        "paymentExpiry": _in_taipei(order.expires_at),
        "paymentChannel": ["CC"],
    }


def _in_taipei(moment: datetime) -> str:
    return moment.astimezone(timezone(timedelta(hours=8))).strftime("%Y-%m-%d %H:%M:%S")


async def test_an_order_contains_the_buyers_locale_and_email(
    gateway: TwoC2pGateway, account: GatewayAccount, order: GatewaySessionRequest
) -> None:
    detailed = replace(order, kind="qr", locale="zh-Hant-TW-x-long", payer_email="b@example.com")
    claims = await order_claims(gateway, account, detailed)
    assert claims["paymentChannel"] == ["QR"]
    assert claims["locale"] == "zh"
    assert claims["userInfo"] == {"email": "b@example.com"}
    claims = await order_claims(gateway, account, replace(order, kind="redirect"))
    assert "paymentChannel" not in claims


@pytest.mark.parametrize(
    ("kind", "brand", "channel"),
    [
        ("redirect", "truemoney", ["TRUEMONEY"]),
        ("redirect", "gcash", ["GCASH"]),
        ("redirect", "promptpay", ["QR"]),
        ("qr", "promptpay", ["QR"]),
        ("card", "gcash", ["CC"]),
        ("redirect", "konbini", None),  # 2C2P does not support it
    ],
)
async def test_a_branded_method_opens_its_payment_channel(
    gateway: TwoC2pGateway,
    account: GatewayAccount,
    order: GatewaySessionRequest,
    kind: str,
    brand: str,
    channel: list[str] | None,
) -> None:
    claims = await order_claims(gateway, account, replace(order, kind=kind, brand=brand))
    assert claims.get("paymentChannel") == channel


def test_every_channel_belongs_to_a_known_brand() -> None:
    assert BRAND_CHANNELS.keys() <= BRANDS_BY_CODE.keys()


@pytest.mark.parametrize(
    ("locale", "language"),
    [
        *((tag, tag) for tag in ("en", "id", "ja", "my", "th", "vi", "zh")),
        ("zh-TW", "zh"),
        ("EN_us", "en"),
        *((tag, None) for tag in ("ms-MY", "ar", "ko", "fil", "enx", "", "-")),
    ],
)
async def test_only_languages_that_the_page_supports_are_requested(
    gateway: TwoC2pGateway,
    account: GatewayAccount,
    order: GatewaySessionRequest,
    locale: str,
    language: str | None,
) -> None:
    claims = await order_claims(gateway, account, replace(order, locale=locale))
    assert claims.get("locale") == language
    assert isinstance(
        await gateway.create_session(account, replace(order, locale=locale)), SessionCreated
    )


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a < b & c", "a &lt; b &amp; c"),
        ("x" * 300, "x" * 250),
        ("&" * 300, "&amp;" * 50),
        ("", "-"),
    ],
)
async def test_a_description_is_escaped_and_truncated_between_escapes(
    gateway: TwoC2pGateway,
    account: GatewayAccount,
    order: GatewaySessionRequest,
    text: str,
    escaped: str,
) -> None:
    claims = await order_claims(gateway, account, replace(order, description=text))
    assert claims["description"] == escaped


async def test_the_deadline_is_sent_in_the_gateways_time_zone(
    gateway: TwoC2pGateway, order: GatewaySessionRequest
) -> None:
    at = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)
    order = replace(order, opened_at=at, expires_at=at + timedelta(minutes=5))
    account = account_at("", utc_offset="+08:00")
    assert (await order_claims(gateway, account, order))["paymentExpiry"] == "2026-11-21 07:35:00"
    western = account_at("", utc_offset="-03:30")
    assert (await order_claims(gateway, western, order))["paymentExpiry"] == "2026-11-20 20:05:00"
    day = replace(order, expires_at=at + timedelta(days=1))  # a token expires earlier
    assert (await order_claims(gateway, account, day))["paymentExpiry"] == "2026-11-21 08:00:00"


@pytest.mark.parametrize("offset", ["", "8", "+8:00", "+08:00 ", "+15:00", "+08:60", "UTC"])
async def test_a_session_is_not_created_without_a_valid_utc_offset(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, offset: str
) -> None:
    requests: list[bytes] = []
    async with serve_responses(reply("200 OK", b"{}"), requests) as server_url:
        outcome = await gateway.create_session(account_at(server_url, utc_offset=offset), order)
    assert isinstance(outcome, SessionRejected)
    assert requests == []


def test_the_gateway_is_offered_in_the_countries_of_its_merchants() -> None:
    expected = {"TH", "ID", "PH", "SG", "MY", "HK", "TW", "VN", "KH"}
    assert TwoC2pGateway.capabilities.countries == expected


async def test_the_buyer_is_redirected_to_the_page_until_its_token_expires(
    gateway: TwoC2pGateway, account: GatewayAccount, order: GatewaySessionRequest
) -> None:
    at = order.opened_at.replace(microsecond=0)
    day = replace(order, opened_at=at, expires_at=at + timedelta(days=1))
    session = await gateway.create_session(account, day)
    assert isinstance(session, SessionCreated)
    redirect = session.next_action["redirect"]
    assert datetime.fromisoformat(redirect["expires_at"]) == at + timedelta(minutes=30)
    assert redirect["url"].startswith(f"{account.base_url}/payment/4.3/token/")
    assert session.reference == ref(order).reference


async def test_a_wrong_utc_offset_makes_the_gateway_reject_the_deadline(
    gateway: TwoC2pGateway, url: str, order: GatewaySessionRequest, buyer: Shop
) -> None:
    account = account_at(url, utc_offset="+08:00")
    page = await create(gateway, account, order)
    assert "Card number" in (await buyer.show(page))[1]
    wrong_account = account_at(url, utc_offset="-08:00")  # moves the deadline into the past
    new_order = replace(order, session_id=uuid4())
    assert isinstance(await gateway.create_session(wrong_account, new_order), SessionRejected)


async def test_a_repeated_order_returns_the_same_page_and_a_changed_order_is_unknown(
    gateway: TwoC2pGateway, account: GatewayAccount, order: GatewaySessionRequest
) -> None:
    page = await create(gateway, account, order)
    assert await create(gateway, account, order) == page
    outcome = await gateway.create_session(account, replace(order, amount_minor=1))
    expected = OutcomeUnknown(detail="response 9015: Existing invoice number", has_responded=True)
    assert outcome == expected


async def test_signed_and_unsigned_refusals_are_accepted(
    gateway: TwoC2pGateway, url: str, order: GatewaySessionRequest
) -> None:
    unknown_account = account_at(url, merchant_id="nobody")
    outcome = await gateway.create_session(unknown_account, order)
    assert outcome == SessionRejected(detail="response 9007: Invalid merchant")
    wrong_secret = account_at(url, secret_key="another")
    outcome = await gateway.create_session(wrong_secret, order)
    assert outcome == SessionRejected(detail="response 9042: Hash value does not match")


@pytest.mark.parametrize(
    "response",
    [
        {"respCode": "0000", "webPaymentUrl": "https://pay.example/x"},
        {"respCode": "9015"},
        {"respCode": "0999"},
        {"respCode": "9995"},
        {"respCode": "12"},
        {"error": "busy"},
    ],
)
async def test_an_unsigned_or_inconclusive_response_to_an_order_is_unknown(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, response: dict[str, str]
) -> None:
    async with serve_responses(reply("200 OK", json.dumps(response).encode())) as server_url:
        outcome = await gateway.create_session(account_at(server_url), order)
    assert isinstance(outcome, OutcomeUnknown)


@pytest.mark.parametrize(
    ("response", "secret"),
    [
        ({"respCode": "0000"}, SECRET),
        ({"respCode": "0000", "webPaymentUrl": "javascript:alert(1)"}, SECRET),
        ({"respCode": "0000", "webPaymentUrl": "https://pay.example/x"}, "another"),
    ],
)
async def test_a_page_is_opened_only_for_a_valid_url_signed_with_the_accounts_secret(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, response: dict[str, str], secret: str
) -> None:
    async with serve_responses(reply("200 OK", envelope(response, secret))) as server_url:
        outcome = await gateway.create_session(account_at(server_url), order)
    assert isinstance(outcome, OutcomeUnknown)


async def test_an_unpaid_session_is_closed_when_its_token_expires(
    http: GatewayHttpClient, account: GatewayAccount, order: GatewaySessionRequest
) -> None:
    await create(TwoC2pGateway(http), account, order)
    for minutes, state in ((0, "open"), (34, "open"), (36, "closed")):
        later_gateway = TwoC2pGateway(http, now=lambda m=minutes: time.time() + m * MINUTE)
        expected = SessionReport(state=GatewaySessionState(state))
        assert await later_gateway.inquire(account, ref(order)) == expected
        assert await later_gateway.close_session(account, ref(order)) == expected


async def test_an_unanswered_order_is_unknown_until_its_token_has_expired(
    http: GatewayHttpClient, account: GatewayAccount, order: GatewaySessionRequest
) -> None:
    unanswered = ref(order, reference=None)
    outcome = await TwoC2pGateway(http).inquire(account, unanswered)
    assert isinstance(outcome, OutcomeUnknown)
    assert outcome.has_responded
    later_gateway = TwoC2pGateway(http, now=lambda: time.time() + 36 * MINUTE)
    assert await later_gateway.inquire(account, unanswered) == SessionReport(
        state=GatewaySessionState.ABSENT
    )


@pytest.mark.parametrize("minutes", [0, 36])
async def test_a_session_of_another_merchant_is_unknown_even_after_its_token_has_expired(
    http: GatewayHttpClient, account: GatewayAccount, order: GatewaySessionRequest, minutes: int
) -> None:
    """The credentials were replaced, and the buyer may have paid the first merchant."""
    await create(TwoC2pGateway(http), account, order)
    gateway = TwoC2pGateway(http, now=lambda: time.time() + minutes * MINUTE)
    outcome = await gateway.inquire(
        account, ref(order, reference=f"JT02.{invoice_no(order.session_id)}")
    )
    assert isinstance(outcome, OutcomeUnknown)
    assert outcome.has_responded


async def test_a_payment_without_a_notification_is_found_by_inquiry(
    gateway: TwoC2pGateway,
    account: GatewayAccount,
    order: GatewaySessionRequest,
    buyer: Shop,
    merchant: Merchant,
) -> None:
    await buyer.press(await create(gateway, account, order), card=SILENT)
    report = await gateway.inquire(account, ref(order))
    assert isinstance(report, SessionReport)
    assert report.capture is not None
    assert report.capture.amount_minor == 159_000
    assert report.capture.reference.startswith(f"{invoice_no(order.session_id)}.")
    assert merchant.received == []


async def test_a_payment_in_progress_is_authorising_and_then_captured(
    order: GatewaySessionRequest, http: GatewayHttpClient, merchant: Merchant
) -> None:
    gateway = TwoC2pGateway(http)
    with running_twoc2p(scale=20) as url:  # the payment is approved after 1.5 s
        account = account_at(url)
        async with aiohttp.ClientSession() as session:
            buyer = Shop(session, url, merchant.url)
            await buyer.press(await create(gateway, account, order), card=IN_PROGRESS)
            received = await merchant.wait_for(2)
        report = await gateway.inquire(account, ref(order))
    callbacks = [gateway.parse_callback(account, make_callback(item.body)) for item in received]
    by_state = {item.report.state: item for item in callbacks if item.report}
    assert set(by_state) == {GatewaySessionState.AUTHORISING, GatewaySessionState.CAPTURED}
    assert len({item.id for item in callbacks}) == 2
    assert by_state[GatewaySessionState.CAPTURED].report == report


async def test_a_session_is_cancelled_if_the_buyer_cancels_on_the_page(
    gateway: TwoC2pGateway,
    account: GatewayAccount,
    order: GatewaySessionRequest,
    buyer: Shop,
    merchant: Merchant,
) -> None:
    await buyer.press(await create(gateway, account, order), cancel="1")
    cancelled = SessionReport(state=GatewaySessionState.CANCELLED)
    assert await gateway.inquire(account, ref(order)) == cancelled
    [received] = await merchant.wait_for(1)
    assert gateway.parse_callback(account, make_callback(received.body)).report == cancelled


def payment_response(session_id: UUID, **changes: Any) -> dict[str, Any]:
    defaults = {
        "merchantID": MERCHANT,
        "invoiceNo": invoice_no(session_id),
        "amount": "000000001590.00000",
        "currencyCode": "THB",
        "tranRef": "2868821",
        "userDefined1": ids.format_id(ids.SESSION, session_id),
        "respCode": "0000",
        "respDesc": "Success",
    }
    return defaults | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"merchantID": "JT02"},
        {"invoiceNo": "another"},
        {"invoiceNo": ""},
        {"amount": None},
        {"currencyCode": ""},
        {"currencyCode": None},
        {"invoiceNo": None},
        {"tranRef": "a b"},
        {"respCode": "7777"},
        {"respCode": "0999"},
        {"respCode": "2003"},
        {"respCode": "ok"},
        {"respCode": 0},
    ],
)
async def test_an_invalid_response_is_unknown(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, changes: dict[str, Any]
) -> None:
    response = payment_response(order.session_id, **changes)
    async with serve_responses(reply("200 OK", envelope(response))) as server_url:
        assert isinstance(await gateway.inquire(account_at(server_url), ref(order)), OutcomeUnknown)


@pytest.mark.parametrize("code", ["0000", "2002", "4005"])
async def test_an_unsigned_or_failed_inquiry_is_unknown(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, code: str
) -> None:
    response = payment_response(order.session_id, respCode=code)
    for body in (
        json.dumps(response).encode(),
        envelope(response, "another"),
        envelope(response, ""),
    ):
        async with serve_responses(reply("200 OK", body)) as server_url:
            assert isinstance(
                await gateway.inquire(account_at(server_url), ref(order)), OutcomeUnknown
            )
    async with serve_responses(reply("500 Oops", envelope(response))) as server_url:
        assert isinstance(await gateway.inquire(account_at(server_url), ref(order)), OutcomeUnknown)


def make_callback(body: bytes) -> CallbackRequest:
    headers = {"content-type": "application/json; charset=utf-8"}
    return CallbackRequest(method="POST", headers=headers, query={}, body=body)


def parse(gateway: TwoC2pGateway, response: dict[str, Any]) -> VerifiedCallback:
    return gateway.parse_callback(account_at(""), make_callback(envelope(response)))


def test_a_notification_is_parsed_with_its_exact_amount(gateway: TwoC2pGateway) -> None:
    session_id = uuid4()
    response = payment_response(session_id)
    callback = parse(gateway, response)
    invoice = invoice_no(session_id)
    capture = Capture(reference=f"{invoice}.2868821", amount_minor=159_000, currency="THB")
    assert json.loads(callback.stored_body or b"") == response
    assert callback == VerifiedCallback(
        id=f"{invoice}.2868821.0000",
        session_id=session_id,
        report=SessionReport(state=GatewaySessionState.CAPTURED, capture=capture),
    )
    reencoded = parse(
        gateway, payment_response(session_id, amount=1590.0, respDesc="paid", more=[1])
    )
    assert reencoded == callback  # the same data in a different encoding is the same callback


@pytest.mark.parametrize("code", sorted(STATES))
def test_every_documented_code_has_its_state_and_failure_reason(
    gateway: TwoC2pGateway, code: str
) -> None:
    report = parse(gateway, payment_response(uuid4(), respCode=code)).report
    assert report is not None
    assert report.state is STATES[code]
    assert (report.capture is not None) == (report.state is GatewaySessionState.CAPTURED)
    assert report.reason == FAILURES.get(code)
    assert gateway.classify_failure(code) is FAILURES.get(code, FailureReason.UNKNOWN)


def test_every_published_code_is_either_mapped_or_undecided() -> None:
    assert not [code for code in PUBLISHED if (code in STATES) == (code in UNDECIDED)]


@pytest.mark.parametrize(
    ("code", "state"),
    [
        *((code, "cancelled") for code in ("0003", "4017", "4080", "5010", "5019")),
        *((code, "declined") for code in ("4058", "4060", "4063", "4066", "4067", "4068")),
        *((code, "declined") for code in ("4075", "4076", "4077", "4078", "4090", "4092")),
        *((code, "declined") for code in ("4093", "4094", "4098", "5011", "5012", "5013", "5998")),
        *((code, "captured") for code in ("5015", "5016", "5017")),
    ],
)
async def test_published_final_codes_end_the_session(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, code: str, state: str
) -> None:
    response = payment_response(order.session_id, respCode=code)
    async with serve_responses(reply("200 OK", envelope(response))) as server_url:
        report = await gateway.inquire(account_at(server_url), ref(order))
    assert isinstance(report, SessionReport)
    assert report.state == state
    assert parse(gateway, response).report == report


@pytest.mark.parametrize("code", sorted(DEVIATIONS))
@pytest.mark.parametrize("amount", ["1590", 1600, "1.5"])
def test_a_deviating_payment_is_an_uncertain_capture_with_its_response_code(
    gateway: TwoC2pGateway, code: str, amount: str | int
) -> None:
    report = parse(gateway, payment_response(uuid4(), respCode=code, amount=amount)).report
    assert report is not None
    capture = report.capture
    assert capture is not None
    assert not capture.matches(capture.amount_minor, "THB")
    assert capture.uncertain
    assert capture.verbatim == f"{amount} THB, response {code} ({DEVIATIONS[code]})"
    padded = payment_response(uuid4(), respCode=code, amount=f"{float(amount):018.5f}")
    padded_report = parse(gateway, padded).report
    assert padded_report is not None
    assert padded_report.capture is not None
    assert padded_report.capture.verbatim == capture.verbatim


@pytest.mark.parametrize("reference", [None, ""])
async def test_without_a_tran_ref_the_reference_of_a_payment_contains_only_its_prefix(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, reference: str | None
) -> None:
    response = payment_response(order.session_id, tranRef=reference)
    async with serve_responses(reply("200 OK", envelope(response))) as server_url:
        report = await gateway.inquire(account_at(server_url), ref(order))
    assert isinstance(report, SessionReport)
    assert report.capture is not None
    whole = parse(gateway, payment_response(order.session_id)).report
    assert whole is not None
    assert whole.capture is not None
    assert report.capture.reference == f"{invoice_no(order.session_id)}."
    assert whole.capture.reference.startswith(report.capture.reference)
    assert parse(gateway, response).report == report


@pytest.mark.parametrize("code", [*sorted(UNDECIDED - NOT_FOUND), "7777"])
@pytest.mark.parametrize("status", ["200 OK", "500 Oops"])
async def test_a_signed_response_is_never_an_outage(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, code: str, status: str
) -> None:
    unset = dict.fromkeys(("merchantID", "invoiceNo", "respDesc", "amount", "tranRef"))
    for response in (
        payment_response(order.session_id, respCode=code),
        {**unset, "respCode": code},
    ):
        async with serve_responses(reply(status, envelope(response))) as server_url:
            outcome = await gateway.inquire(account_at(server_url), ref(order))
        assert isinstance(outcome, OutcomeUnknown)
        assert outcome.has_responded
        async with serve_responses(reply(status, envelope(response, "another"))) as server_url:
            outcome = await gateway.inquire(account_at(server_url), ref(order))
        assert isinstance(outcome, OutcomeUnknown)
        assert not outcome.has_responded


@pytest.mark.parametrize("code", sorted(NOT_FOUND))
async def test_a_not_found_response_with_null_fields_is_accepted(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, code: str
) -> None:
    unset = dict.fromkeys(("merchantID", "invoiceNo", "respDesc", "amount", "tranRef"))
    response = reply("200 OK", envelope({**unset, "respCode": code}), "Connection: close")
    async with serve_responses(response) as server_url:
        account = account_at(server_url)
        assert await gateway.inquire(account, ref(order)) == SessionReport(
            state=GatewaySessionState.OPEN
        )
        rejected = await gateway.create_session(account, order)
    assert rejected == SessionRejected(detail=f"response {code}: ")


@pytest.mark.parametrize("code", sorted(UNSETTLED))
async def test_a_signed_inconclusive_response_to_an_order_is_not_an_outage(
    gateway: TwoC2pGateway, order: GatewaySessionRequest, code: str
) -> None:
    response = {"respCode": code, "respDesc": None, "webPaymentUrl": ""}
    async with serve_responses(reply("200 OK", envelope(response))) as server_url:
        signed = await gateway.create_session(account_at(server_url), order)
    async with serve_responses(reply("200 OK", json.dumps(response).encode())) as server_url:
        unsigned = await gateway.create_session(account_at(server_url), order)
    assert isinstance(signed, OutcomeUnknown)
    assert isinstance(unsigned, OutcomeUnknown)
    assert (signed.has_responded, unsigned.has_responded) == (True, False)


@pytest.mark.parametrize(
    ("code", "state", "funds"),
    [
        ("4130", DisputeState.OPEN, DisputedFunds.WITHDRAWN),
        ("4131", DisputeState.WON, DisputedFunds.REINSTATED),
        ("4132", DisputeState.WON, DisputedFunds.REINSTATED),
    ],
)
def test_a_chargeback_is_a_dispute_of_the_whole_payment_without_a_deadline(
    gateway: TwoC2pGateway, code: str, state: DisputeState, funds: DisputedFunds
) -> None:
    session_id = uuid4()
    callback = parse(
        gateway, payment_response(session_id, respCode=code, respDesc="Charge\x00back")
    )
    assert callback.dispute == DisputeReport(
        reference=invoice_no(session_id),
        capture=f"{invoice_no(session_id)}.2868821",
        state=state,
        funds=funds,
        amount_minor=159_000,
        currency="THB",
        reason=f"response {code}: Chargeback",
    )


@pytest.mark.parametrize("code", sorted(STATES.keys() - {"4130", "4131", "4132"}))
def test_codes_other_than_chargebacks_are_not_disputes(gateway: TwoC2pGateway, code: str) -> None:
    assert parse(gateway, payment_response(uuid4(), respCode=code)).dispute is None


async def test_a_soft_decline_is_reported_as_attempted_by_callback_and_as_open_by_inquiry(
    gateway: TwoC2pGateway, order: GatewaySessionRequest
) -> None:
    response = payment_response(order.session_id, respCode="0004")
    report = parse(gateway, response).report
    assert report == SessionReport(
        state=GatewaySessionState.ATTEMPTED, reason=FailureReason.DECLINED
    )
    async with serve_responses(reply("200 OK", envelope(response))) as server_url:
        outcome = await gateway.inquire(account_at(server_url), ref(order))
    assert outcome == SessionReport(state=GatewaySessionState.OPEN)


@pytest.mark.parametrize("code", ["7777", *sorted(UNDECIDED)])
def test_a_callback_with_an_inconclusive_code_has_no_report(
    gateway: TwoC2pGateway, code: str
) -> None:
    callback = parse(gateway, payment_response(uuid4(), respCode=code))
    assert (callback.session_id, callback.report) == (None, None)
    assert callback.id.endswith(f".{code}")


def test_a_payment_of_another_shop_of_the_merchant_has_no_session_id(
    gateway: TwoC2pGateway,
) -> None:
    for user_defined in ("", "order-7", None):
        response = payment_response(uuid4(), invoiceNo="2026-000.7", userDefined1=user_defined)
        callback = parse(gateway, response)
        assert callback.session_id is None
        assert callback.report is not None
        assert callback.report.capture is not None
        assert callback.report.capture.reference == "2026-000.7.2868821"


@pytest.mark.parametrize(
    "changes",
    [
        {"merchantID": "JT02"},
        {"merchantID": None},
        {"invoiceNo": ""},
        {"invoiceNo": "a\u0000b"},
        {"invoiceNo": "a" * 51},
        {"amount": {}},
        {"amount": "1e3"},
        {"currencyCode": "S$"},
        {"currencyCode": None},
        {"invoiceNo": None},
        {"tranRef": "x" * 256},
        {"respCode": "4005", "invoiceNo": ""},
        {"respCode": "4005", "invoiceNo": "a" * 51, "userDefined1": None},
        {"respCode": "4005", "tranRef": "a\u0000b"},
        {"respCode": "00"},
        {"respCode": None},
        {"userDefined1": ids.format_id(ids.SESSION, UUID(int=7))},
    ],
)
def test_a_signed_callback_with_invalid_content_is_refused(
    gateway: TwoC2pGateway, changes: dict[str, Any]
) -> None:
    with pytest.raises(InvalidCallbackError):
        parse(gateway, payment_response(uuid4(), **changes))


@pytest.mark.parametrize(
    ("changes", "minor", "currency", "verbatim"),
    [
        ({"currencyCode": "SGD"}, 159_000, "SGD", None),
        ({"currencyCode": "VND"}, 1_590, "VND", None),
        ({"amount": "1590.001"}, 159_000, "THB", "1590.001 THB"),
        ({"tranRef": "x" * 255}, 159_000, "THB", None),
    ],
)
async def test_a_payment_in_another_currency_or_precision_is_reported_as_received(
    gateway: TwoC2pGateway,
    order: GatewaySessionRequest,
    changes: dict[str, Any],
    minor: int,
    currency: str,
    verbatim: str | None,
) -> None:
    response = payment_response(order.session_id, **changes)
    expected = Capture(
        reference=f"{response['invoiceNo']}.{response['tranRef']}",
        amount_minor=minor,
        currency=currency,
        verbatim=verbatim,
    )
    report = parse(gateway, response).report
    assert report == SessionReport(state=GatewaySessionState.CAPTURED, capture=expected)
    async with serve_responses(reply("200 OK", envelope(response))) as server_url:
        assert await gateway.inquire(account_at(server_url), ref(order)) == report


@pytest.mark.parametrize("alg", ["none", "HS512", "RS256"])
def test_a_callback_with_another_algorithm_is_refused(gateway: TwoC2pGateway, alg: str) -> None:
    content = json.dumps(payment_response(uuid4())).encode()
    for token in (
        jwt(content, SECRET, alg=alg),
        f"{jwt(content, '', alg=alg).rpartition('.')[0]}.",
    ):
        body = json.dumps({"payload": token}).encode()
        with pytest.raises(InvalidCallbackError):
            gateway.parse_callback(account_at(""), make_callback(body))


def test_a_notification_is_acknowledged_with_plain_text(gateway: TwoC2pGateway) -> None:
    ack = gateway.acknowledge(parse(gateway, payment_response(uuid4())))
    assert (ack.body, ack.content_type) == (b"OK", "text/plain")


def test_invoice_numbers_are_unique_and_have_twenty_alphanumeric_characters() -> None:
    numbers = {invoice_no(uuid4()) for _ in range(1_000)}
    assert len(numbers) == 1_000
    assert all(len(number) == 20 and number.isascii() and number.isalnum() for number in numbers)
    assert invoice_no(UUID(int=0)) == "0" * 20


async def test_the_response_that_a_returning_buyer_posts_is_refused(
    gateway: TwoC2pGateway, account: GatewayAccount, order: GatewaySessionRequest, buyer: Shop
) -> None:
    _, page = await buyer.press(await create(gateway, account, order), card=APPROVED)
    assert 'name="paymentResponse"' in page
    response = page.partition('name="paymentResponse" value="')[2].partition('"')[0]
    with pytest.raises(InvalidCallbackError):
        gateway.parse_callback(account, make_callback(f"paymentResponse={response}".encode()))
