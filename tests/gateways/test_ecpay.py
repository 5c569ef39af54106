"""The ECPay adapter: the buyer's form, and results from callbacks and inquiries."""

from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from payintent.gateways.port import (
    Capture,
    FailureReason,
    GatewayAccount,
    GatewaySessionState,
    InvalidCallbackError,
    NotContacted,
    OutcomeUnknown,
    SessionRejected,
    SessionReport,
)
from tests.gateways.ecpay_setup import (
    RETURN_URL,
    WHOLE,
    Script,
    Stage,
    account_at,
    notice,
    number_from,
    open_stage,
    ref_of,
    serve_script,
    trade_of,
)
from tests.sandbox.ecpay.emulator_setup import (
    DEARER,
    DECLINED,
    SIMULATED,
    TWICE,
    UNCONFIRMED,
    mac,
    running_ecpay,
)

OPEN, CLOSED = (
    SessionReport(state=GatewaySessionState.OPEN),
    SessionReport(state=GatewaySessionState.CLOSED),
)
ID = UUID("01234567-89ab-4def-8123-456789abcdef")
LONG_AGO = datetime.now(UTC) - timedelta(minutes=61)


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with running_ecpay() as url:
        yield url


@pytest.fixture
async def stage(url: str) -> AsyncGenerator[Stage]:
    async with open_stage(url) as stage:
        yield stage


async def test_the_form_contains_exactly_the_values_of_the_session(stage: Stage) -> None:
    request = stage.request(
        session_id=ID,
        description="Nimbus Books pay_1",
        opened_at=datetime(2026, 11, 22, 18, 30, 5, tzinfo=UTC),
        locale="en-US",
    )
    session = await stage.create_session(request)
    assert session.reference == number_from(ID)
    redirect = session.next_action["redirect"]
    fields = redirect.pop("fields")
    expires_at = request.expires_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert redirect == {
        "url": f"{stage.buyer.url}/Cashier/AioCheckOut/V5",
        "method": "POST",
        "expires_at": expires_at,
    }
    assert fields == {
        "MerchantID": "3002607",
        "MerchantTradeNo": number_from(ID),
        "MerchantTradeDate": "2026/11/23 02:30:05",
        "PaymentType": "aio",
        "TotalAmount": "1590",
        "TradeDesc": "Nimbus Books pay_1",
        "ItemName": "Nimbus Books pay_1",
        "ReturnURL": stage.ear.url,
        "OrderResultURL": RETURN_URL,
        "ClientBackURL": RETURN_URL,
        "UnionPay": "2",
        "ChoosePayment": "Credit",
        "EncryptType": "1",
        "NeedExtraPaidInfo": "Y",
        "CustomField1": ID.hex,
        "Language": "ENG",
        "CheckMacValue": mac(fields),
    }
    assert await stage.create_session(request) == await stage.create_session(request)


async def test_trade_numbers_are_unique_and_have_twenty_alphanumeric_characters(
    stage: Stage,
) -> None:
    numbers = {(await stage.create_session(stage.request())).reference for _ in range(50)}
    assert len(numbers) == 50
    assert all(len(number) == 20 and number.isascii() and number.isalnum() for number in numbers)


async def test_the_payment_page_can_be_on_a_different_host_than_the_api(stage: Stage) -> None:
    stage.account = account_at("http://api.test", page_url="https://pages.test/")
    redirect = (await stage.create_session(stage.request())).next_action["redirect"]
    assert redirect["url"] == "https://pages.test/Cashier/AioCheckOut/V5"


@pytest.mark.parametrize(
    ("locale", "language"),
    [
        (None, None),
        ("zh-TW", None),
        ("zh-Hant", None),
        ("zh", None),
        ("zh-Hans-CN", "CHI"),
        ("zh_CN", "CHI"),
        ("ja-JP", "JPN"),
        ("ko", "KOR"),
        ("th", "ENG"),
    ],
)
async def test_the_payment_page_uses_the_buyers_language_or_english(
    stage: Stage, locale: str | None, language: str | None
) -> None:
    redirect = (await stage.create_session(stage.request(locale=locale))).next_action["redirect"]
    assert redirect["fields"].get("Language") == language


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ('Tom\'s <b>Café</b> #1; "x" | `rm`', "Tom s b Café b 1 x"),
        ("雪國書店 pay_1", "雪國書店 pay_1"),
        ("Echo Coffee pay_1", "Coffee pay_1"),
        ("學Python書店, Mail-Order Pings", "學 書店, -Order Pings"),
        ("a&TotalAmount=1", "a TotalAmount 1"),
        ("#&<>", "Payment"),
        ("", "Payment"),
        ("x" * 300, "x" * 200),
    ],
)
async def test_characters_that_ecpay_refuses_are_removed_from_a_description(
    stage: Stage, description: str, expected: str
) -> None:
    session = await stage.submit_order(description=description)
    fields = (await stage.create_session(stage.request(description=description))).next_action[
        "redirect"
    ]
    assert fields["fields"]["ItemName"] == fields["fields"]["TradeDesc"] == expected
    assert await stage.gateway.inquire(stage.account, session) == OPEN


async def test_the_form_omits_the_result_url_if_there_is_no_return_url(stage: Stage) -> None:
    redirect = (await stage.create_session(stage.request(return_url=""))).next_action["redirect"]
    assert "OrderResultURL" not in redirect["fields"]


@pytest.mark.parametrize(
    "changes",
    [
        {"currency": "USD"},
        {"amount_minor": 159_050},
        {"callback_url": "https://pay.example/" + "x" * 181},
        {"return_url": "https://pay.example/" + "x" * 181},
    ],
)
async def test_a_session_that_ecpay_cannot_represent_is_rejected(
    stage: Stage, changes: dict[str, object]
) -> None:
    outcome = await stage.gateway.create_session(stage.account, stage.request(**changes))
    assert isinstance(outcome, SessionRejected)


@pytest.mark.parametrize("name", ["merchant_id", "hash_key", "hash_iv"])
async def test_an_account_with_a_missing_credential_is_not_contacted(
    stage: Stage, name: str
) -> None:
    account = account_at(stage.buyer.url, **{name: ""})
    request = stage.request()
    assert await stage.gateway.create_session(account, request) == SessionRejected(
        detail=f"the account has no {name}"
    )
    assert await stage.gateway.inquire(account, ref_of(request)) == NotContacted(
        detail=f"the account has no {name}"
    )


async def test_an_order_is_absent_until_the_buyer_submits_it_and_then_open(
    stage: Stage,
) -> None:
    pending = ref_of(stage.request())
    assert await stage.gateway.inquire(stage.account, pending) == SessionReport(
        state=GatewaySessionState.ABSENT
    )
    session = await stage.submit_order()
    for item in (session, replace(session, reference=None)):
        assert await stage.gateway.inquire(stage.account, item) == OPEN


async def test_an_unpaid_order_counts_as_closed_an_hour_after_it_was_opened(stage: Stage) -> None:
    session = await stage.submit_order()
    assert await stage.gateway.close_session(stage.account, session) == OPEN
    expired = replace(session, opened_at=LONG_AGO)
    assert await stage.gateway.close_session(stage.account, expired) == CLOSED
    assert await stage.gateway.inquire(stage.account, expired) == OPEN  # it can still be paid
    await stage.buyer.pay(str(session.reference))
    report = await stage.gateway.close_session(stage.account, expired)
    assert isinstance(report, SessionReport)
    assert report.state is GatewaySessionState.CAPTURED


async def test_a_declined_card_ends_the_session(stage: Stage) -> None:
    session = await stage.submit_order()
    await stage.buyer.pay(str(session.reference), DECLINED)
    declined = SessionReport(state=GatewaySessionState.DECLINED, reason=FailureReason.DECLINED)
    assert await stage.gateway.inquire(stage.account, session) == declined
    [callback] = await stage.wait_for_callbacks()
    assert stage.gateway.parse_callback(stage.account, callback).report == declined


async def test_an_order_that_ecpay_has_not_established_stays_open_for_an_hour(
    stage: Stage,
) -> None:
    session = ref_of(stage.request())
    trade = trade_of(session, TradeStatus="10200095", process_date="", gwsr="")
    async with serve_script(Script(trade)) as account:
        assert await stage.gateway.inquire(account, session) == OPEN
        assert await stage.gateway.close_session(account, session) == OPEN
        expired = replace(session, opened_at=LONG_AGO)
        assert await stage.gateway.inquire(account, expired) == CLOSED
        assert await stage.gateway.close_session(account, expired) == CLOSED


@pytest.mark.parametrize(
    "changes",
    [
        {"MerchantID": "7"},
        {"MerchantTradeNo": "another"},
        {"CustomField1": "0" * 32},
        {"TradeStatus": "2"},
        {"TradeStatus": ""},
        {"TradeNo": ""},
        {"TradeAmt": "0"},
        {"TradeAmt": "15.9O"},
        {"TradeAmt": "-1590"},
        {"ItemName": "a&b=c"},
    ],
)
async def test_a_response_that_does_not_match_the_session_is_unknown(
    stage: Stage, changes: dict[str, str]
) -> None:
    session = ref_of(stage.request())
    async with serve_script(Script(trade_of(session, **changes))) as account:
        outcome = await stage.gateway.inquire(account, session)
    assert isinstance(outcome, OutcomeUnknown)
    # A signed response is not an outage, but an ambiguous form cannot be verified.
    assert outcome.has_responded == ("ItemName" not in changes)


async def test_a_response_with_an_invalid_signature_is_unknown(stage: Stage) -> None:
    session = ref_of(stage.request())
    trade = trade_of(session) | {"TradeAmt": "1"}
    async with serve_script(Script(trade)) as account:
        outcome = await stage.gateway.inquire(account, session)
    assert isinstance(outcome, OutcomeUnknown)
    assert not isinstance(outcome, NotContacted)
    assert not outcome.has_responded


async def test_an_overpayment_is_reported_with_the_received_amount(stage: Stage) -> None:
    _, capture = await stage.capture(DEARER)
    assert (capture.amount_minor, capture.currency) == (WHOLE + 100, "TWD")


async def test_a_fractional_amount_is_reported_as_received(stage: Stage) -> None:
    session = ref_of(stage.request())
    for amount, minor, verbatim in (
        ("1590.5", WHOLE + 50, None),
        ("1590.001", WHOLE, "1590.001 TWD"),
    ):
        async with serve_script(Script(trade_of(session, TradeAmt=amount))) as account:
            report = await stage.gateway.inquire(account, session)
        assert isinstance(report, SessionReport)
        assert report.capture is not None
        assert (report.capture.amount_minor, report.capture.verbatim) == (minor, verbatim)


async def test_repeated_callbacks_with_different_bytes_give_the_same_result(stage: Stage) -> None:
    session = await stage.pay(TWICE)
    first, second = [
        stage.gateway.parse_callback(stage.account, callback)
        for callback in await stage.wait_for_callbacks(2)
    ]
    assert first == second
    assert first.session_id == session.session_id
    assert first.report == await stage.gateway.inquire(stage.account, session)


async def test_a_simulated_payment_is_ignored_and_does_not_hide_a_real_payment(
    stage: Stage,
) -> None:
    session = await stage.pay(SIMULATED)
    assert await stage.gateway.inquire(stage.account, session) == OPEN
    await stage.buyer.pay(str(session.reference))
    callbacks = [
        stage.gateway.parse_callback(stage.account, request)
        for request in await stage.wait_for_callbacks(2)
    ]
    # The two notifications are sent at the same time, so either may arrive first.
    simulated, real = sorted(callbacks, key=lambda callback: callback.report is not None)
    assert (simulated.session_id, simulated.report) == (session.session_id, None)
    assert real.report is not None
    assert real.report.state is GatewaySessionState.CAPTURED
    assert simulated.id != real.id


async def test_an_unconfirmed_result_is_authorising(stage: Stage) -> None:
    session = await stage.pay(UNCONFIRMED)
    first, second = [
        stage.gateway.parse_callback(stage.account, callback)
        for callback in await stage.wait_for_callbacks(2)
    ]
    assert first.report == SessionReport(state=GatewaySessionState.AUTHORISING)
    assert second.report == await stage.gateway.inquire(stage.account, session)
    assert first.id != second.id


def parse_report(
    stage: Stage, account: GatewayAccount | None = None, **changes: str | None
) -> SessionReport | None:
    callback = stage.gateway.parse_callback(account or stage.account, notice(ID, **changes))
    assert callback.session_id == ID
    return callback.report


async def test_a_payment_that_is_marked_as_simulated_is_not_captured(stage: Stage) -> None:
    capture = Capture(reference="2611221100000001", amount_minor=WHOLE, currency="TWD")
    assert parse_report(stage) == SessionReport(state=GatewaySessionState.CAPTURED, capture=capture)
    for flag in ("", "2", None):
        assert parse_report(stage, SimulatePaid=flag) == parse_report(stage)
    assert parse_report(stage, SimulatePaid="1") is None
    # The hash ignores the case of names.
    assert parse_report(stage, SimulatePaid=None, simulatepaid="1") is None


@pytest.mark.parametrize("code", ["2", "10100073", "10300028"])
async def test_inconclusive_codes_are_not_reported(stage: Stage, code: str) -> None:
    assert parse_report(stage, RtnCode=code) is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("10100248", FailureReason.DECLINED),
        ("10800001", FailureReason.DECLINED),
        ("10100999", FailureReason.UNKNOWN),
        ("0", FailureReason.UNKNOWN),
        ("-1", FailureReason.UNKNOWN),
    ],
)
async def test_failure_codes_decline_the_session(
    stage: Stage, code: str, reason: FailureReason
) -> None:
    declined = SessionReport(state=GatewaySessionState.DECLINED, reason=reason)
    assert parse_report(stage, RtnCode=code, TradeNo="", TradeAmt="") == declined


@pytest.mark.parametrize(
    "changes",
    [
        {"MerchantID": "7"},
        {"MerchantID": None},
        {"MerchantTradeNo": "another"},
        {"MerchantTradeNo": number_from(ID).swapcase()},
        {"CustomField1": None},
        {"CustomField1": ID.hex.upper()},
        {"CustomField1": "sess_" + "0" * 22},
        {"RtnCode": None},
        {"RtnCode": "one"},
        {"TradeNo": ""},
        {"TradeNo": "x" * 16},
        {"TradeNo": "1" * 21},
        {"TradeAmt": "0"},
        {"TradeAmt": None},
        {"TradeAmt": "1,590"},
    ],
)
async def test_a_signed_result_that_contradicts_itself_is_refused(
    stage: Stage, changes: dict[str, str | None]
) -> None:
    with pytest.raises(InvalidCallbackError):
        stage.gateway.parse_callback(stage.account, notice(ID, **changes))


async def test_a_callback_is_acknowledged_with_1_ok(stage: Stage) -> None:
    callback = stage.gateway.parse_callback(stage.account, notice(ID))
    ack = stage.gateway.acknowledge(callback)
    assert (ack.body, ack.content_type) == (b"1|OK", "text/plain")


async def test_a_session_of_another_account_is_unknown(stage: Stage) -> None:
    session = await stage.pay()
    other_account = account_at(stage.buyer.url, merchant_id="2000132")
    assert isinstance(await stage.gateway.inquire(other_account, session), OutcomeUnknown)
