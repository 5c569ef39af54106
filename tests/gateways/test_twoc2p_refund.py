from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree as ET

import aiohttp
import pytest

from payintent.core import ids
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    AccountProblem,
    Capture,
    GatewayAccount,
    GatewayRefundRequest,
    GatewayRefundState,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
)
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.gateways.twoc2p.refunds import _maintenance_url
from payintent.gateways.twoc2p.response_codes import REFUND_STATES, REFUSED
from payintent_sandbox.emulators.twoc2p import envelope
from payintent_sandbox.emulators.twoc2p.keys import read_private, read_public
from tests.gateways.raw_server import reply, serve_responses
from tests.gateways.test_twoc2p import account_at
from tests.sandbox.twoc2p.emulator_setup import MERCHANT, UNSETTLED, Shop, pair, running_twoc2p

INVOICE = "0123456789abcdefghij"
NOW = 1_767_225_599.0  # 2025-12-31 23:59:59 UTC


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with running_twoc2p() as url:
        yield url


@pytest.fixture
async def buyer(url: str) -> AsyncGenerator[Shop]:
    async with aiohttp.ClientSession() as http:
        yield Shop(http, url, f"{url}/healthz")


@pytest.fixture
async def http() -> AsyncGenerator[GatewayHttpClient]:
    http = GatewayHttpClient(timeout_s=10, response_bytes_max=256 * 1024)
    yield http
    await http.close()


@pytest.fixture
def gateway(http: GatewayHttpClient) -> TwoC2pGateway:
    return TwoC2pGateway(http, now=lambda: NOW)


def refund_request(**changes: Any) -> GatewayRefundRequest:
    defaults = GatewayRefundRequest(
        refund_id=uuid4(),
        reference=None,
        session=None,
        capture=Capture(reference=f"{INVOICE}.42", amount_minor=159_000, currency="THB"),
        amount_minor=25_00,
        reason="requested",
        destination=None,
        callback_url="https://ours.example/callback",
    )
    return replace(defaults, **changes)


def make_response(inner: str = "", *, root: str = "PaymentProcessResponse", **fields: str) -> bytes:
    """Return an encrypted response, as the gateway does."""
    defaults = {"respCode": "00", "processType": "R", "invoiceNo": INVOICE, "status": "RF"}
    content = "".join(f"<{name}>{text}</{name}>" for name, text in (defaults | fields).items())
    return encrypt(f"<{root}>{content}{inner}</{root}>".encode())


def encrypt(content: bytes) -> bytes:
    merchant, own = read_public(pair(MERCHANT)[1]), read_private(pair("gateway")[0])
    return envelope.seal(content, merchant, own).encode()


async def send_refund(
    gateway: TwoC2pGateway, response: bytes, request: GatewayRefundRequest | None = None
) -> RefundReport | OutcomeUnknown:
    async with serve_responses(reply("200 OK", response)) as server_url:
        return await gateway.refund(account_at(server_url), request or refund_request())


async def send_inquiry(
    gateway: TwoC2pGateway, response: bytes, request: GatewayRefundRequest
) -> RefundReport | OutcomeUnknown:
    async with serve_responses(reply("200 OK", response)) as server_url:
        return await gateway.inquire_refund(account_at(server_url), request)


async def requests(gateway: TwoC2pGateway, request: GatewayRefundRequest) -> list[dict[str, str]]:
    """Refund an unsettled payment, then inquire; return the requests."""
    recorded = list[bytes]()
    refusal = make_response(respCode="12", processType="", invoiceNo="", status="")
    async with serve_responses(
        reply("200 OK", refusal, "Connection: close"), recorded
    ) as server_url:
        await gateway.refund(account_at(server_url), request)
        await gateway.inquire_refund(account_at(server_url), request)
    return decrypt_requests(recorded)


def decrypt_requests(recorded: list[bytes]) -> list[dict[str, str]]:
    """Return the fields of each encrypted request."""
    merchant, own = read_public(pair(MERCHANT)[1]), read_private(pair("gateway")[0])
    decrypted: list[dict[str, str]] = []
    for item in recorded:
        head, _, body = item.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /PaymentAction/2.0/action HTTP/1.1\r\n")
        assert b"Content-Type: text/plain\r\n" in head
        root = ET.fromstring(envelope.unseal(body.decode(), merchant, own))  # noqa: S314 - ours
        assert root.tag == "PaymentProcessRequest"
        decrypted.append({child.tag: child.text or "" for child in root})
    return decrypted


async def test_refund_void_and_inquiry_requests_have_the_documented_fields(
    gateway: TwoC2pGateway,
) -> None:
    request = refund_request(amount_minor=159_000)
    name = ids.format_id(ids.REFUND, request.refund_id)
    common = {
        "version": "4.3",
        "timeStamp": "311225235959",
        "merchantID": MERCHANT,
        "invoiceNo": INVOICE,
        "actionAmount": "1590.00",
        "userDefined1": name,
    }
    assert await requests(gateway, request) == [
        {**common, "processType": "R", "idempotencyID": name},
        {**common, "processType": "V", "idempotencyID": f"{name}-void"},
        {**common, "processType": "RS"},
    ]


@pytest.mark.parametrize(
    ("base_url", "configured", "expected"),
    [
        ("https://pgw.2c2p.com/", "", "https://t.2c2p.com/PaymentAction/2.0/action"),
        (
            "https://sandbox-pgw.2c2p.com",
            "",
            "https://demo2.2c2p.com/2C2PFrontend/PaymentAction/2.0/action",
        ),
        ("https://own.example", "", "https://own.example/PaymentAction/2.0/action"),
        (
            "https://pgw.2c2p.com",
            "https://pgwcore.dp.alipay.com/PaymentAction/2.0/action",
            "https://pgwcore.dp.alipay.com/PaymentAction/2.0/action",
        ),
    ],
)
def test_the_maintenance_api_has_its_own_host(
    base_url: str, configured: str, expected: str
) -> None:
    assert _maintenance_url(account_at(base_url, maintenance_url=configured)) == expected
    origins = {*TwoC2pGateway.capabilities.origins, "https://own.example"}
    assert expected.partition("/2C2PFrontend")[0].partition("/PaymentAction")[0] in origins


@pytest.mark.parametrize(("status", "state"), sorted(REFUND_STATES.items()))
async def test_every_documented_status_maps_to_a_refund_state(
    gateway: TwoC2pGateway, status: str, state: GatewayRefundState
) -> None:
    report = await send_refund(gateway, make_response(status=status, refundReferenceNo="77"))
    assert isinstance(report, RefundReport)
    assert (report.state, report.reference) == (state, "77")


async def test_an_accepted_refund_with_an_undocumented_status_is_pending(
    gateway: TwoC2pGateway,
) -> None:
    report = await send_refund(gateway, make_response(status="ZZ"))
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.PENDING


@pytest.mark.parametrize("code", sorted(REFUSED))
async def test_every_documented_refusal_declines_a_partial_refund(
    gateway: TwoC2pGateway, code: str
) -> None:
    for fields in ({}, {"processType": "", "invoiceNo": ""}):
        report = await send_refund(gateway, make_response(respCode=code, status="", **fields))
        assert isinstance(report, RefundReport)
        assert report.state is GatewayRefundState.DECLINED


@pytest.mark.parametrize("code", ["29", "50", "51", "52", "53", "95", "98", "99", "77", "0000"])
async def test_an_inconclusive_result_code_is_unknown(gateway: TwoC2pGateway, code: str) -> None:
    report = await send_refund(gateway, make_response(respCode=code))
    assert isinstance(report, OutcomeUnknown)
    assert not isinstance(report, NotContacted)


@pytest.mark.parametrize(
    "response",
    [
        make_response(invoiceNo="another"),
        make_response(processType="V"),
        make_response(processType=""),
        make_response(respCode="40", invoiceNo="another"),
        make_response(root="OtherResponse"),
        make_response(respCode=""),
        encrypt(b"<PaymentProcessResponse>"),
        encrypt(b""),
        encrypt(b"\xff\xfe"),
        make_response(respDesc="long " * 8_500),
        b"",
        b"Unable to decrypt",
        b"<PaymentProcessResponse><respCode>00</respCode></PaymentProcessResponse>",
    ],
    ids=range(13),
)
async def test_an_invalid_response_is_unknown(gateway: TwoC2pGateway, response: bytes) -> None:
    assert isinstance(await send_refund(gateway, response), OutcomeUnknown)


async def test_a_signed_response_with_an_http_error_status_is_unknown(
    gateway: TwoC2pGateway,
) -> None:
    async with serve_responses(reply("500 Oops", make_response())) as server_url:
        assert isinstance(
            await gateway.refund(account_at(server_url), refund_request()), OutcomeUnknown
        )


BOMB = (
    '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    "<PaymentProcessResponse><respCode>00</respCode><processType>R</processType>"
    f"<invoiceNo>{INVOICE}</invoiceNo><status>RF</status><respDesc>&b;</respDesc>"
    "</PaymentProcessResponse>"
)


@pytest.mark.parametrize(
    "content",
    [
        BOMB.encode(),
        BOMB.replace('"aaaaaaaaaa"', 'SYSTEM "file:///etc/passwd"').encode(),
        f'<?xml version="1.0" encoding="utf-16"?>{BOMB}'.encode("utf-16"),
        f'<?xml version="1.0" encoding="utf-7"?>{BOMB.replace("<!", "+ADwAIQ-")}'.encode(),
    ],
    ids=range(4),
)
async def test_xml_with_entities_is_refused_before_it_is_parsed(
    gateway: TwoC2pGateway, content: bytes
) -> None:
    assert isinstance(await send_refund(gateway, encrypt(content)), OutcomeUnknown)


async def test_an_amount_that_2c2p_cannot_refund_is_declined_without_a_request(
    gateway: TwoC2pGateway,
) -> None:
    """Orders never contain a fraction of a rupiah, but a deviating capture can."""
    capture = Capture(reference=f"{INVOICE}.42", amount_minor=159_050, currency="IDR")
    recorded = list[bytes]()
    async with serve_responses(reply("200 OK", b""), recorded) as server_url:
        request = refund_request(capture=capture, amount_minor=159_050)
        report = await gateway.refund(account_at(server_url), request)
        outcome = await gateway.inquire_refund(account_at(server_url), request)
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.DECLINED
    assert isinstance(outcome, NotContacted)
    assert recorded == []


async def test_no_request_is_sent_if_the_keys_cannot_be_read(gateway: TwoC2pGateway) -> None:
    recorded: list[bytes] = []
    async with serve_responses(reply("200 OK", make_response()), recorded) as server_url:
        for changes in ({"merchant_private_key": "x"}, {"gateway_public_key": ""}):
            report = await gateway.refund(account_at(server_url, **changes), refund_request())
            assert isinstance(report, NotContacted)
    assert recorded == []


def refund_list(*refunds: str, **fields: str) -> bytes:
    items = "".join(f"<refund {refund}/>" for refund in refunds)
    return make_response(
        f"<refundList>{items}</refundList>", processType="RS", **{"status": "S"} | fields
    )


async def test_a_refund_is_identified_by_its_reference(gateway: TwoC2pGateway) -> None:
    response = refund_list(
        'amount="25.00" status="RR" referenceNo="76"', 'amount="25.00" status="RF" referenceNo="77"'
    )
    report = await send_inquiry(gateway, response, refund_request(reference="77"))
    assert isinstance(report, RefundReport)
    assert (report.state, report.reference) == (GatewayRefundState.DONE, "77")


@pytest.mark.parametrize(
    "refunds",
    [
        [],
        ['amount="24.99" status="RF" referenceNo="1"'],
        ['amount="25.00" status="RF" referenceNo="1"'],
        ['status="RF"'],
    ],
    ids=range(4),
)
@pytest.mark.parametrize("reference", [None, "77"])
async def test_a_new_refund_that_cannot_be_identified_in_the_list_is_absent(
    gateway: TwoC2pGateway, refunds: list[str], reference: str | None
) -> None:
    report = await send_inquiry(gateway, refund_list(*refunds), refund_request(reference=reference))
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.ABSENT
    assert gateway.capabilities.refund_is_idempotent


@pytest.mark.parametrize(("hours", "is_absent"), [(0, True), (23, True), (25, False)])
async def test_a_refund_that_may_be_listed_is_absent_only_for_a_day(
    gateway: TwoC2pGateway, hours: int, is_absent: bool
) -> None:
    refund_id = ids.make_timed_id(int(NOW - hours * 3600) * 1000, 7)
    for refunds in (['amount="25.00" status="RF" referenceNo="1"'], []):
        report = await send_inquiry(
            gateway, refund_list(*refunds), refund_request(refund_id=refund_id)
        )
        if is_absent or not refunds:
            assert isinstance(report, RefundReport)
            assert report.state is GatewayRefundState.ABSENT
        else:
            assert isinstance(report, OutcomeUnknown)
            assert report.has_responded


@pytest.mark.parametrize(
    ("hours", "was_sent_before", "amount", "process_types"),
    [
        (0, True, "25.00", ["R"]),
        (23, True, "25.00", ["R"]),
        (25, False, "25.00", ["R"]),
        (25, True, "25.00", ["RS"]),
        (25, True, "24.00", ["RS", "R"]),
    ],
)
async def test_a_refund_older_than_a_day_is_queried_before_it_is_sent_again(
    gateway: TwoC2pGateway, hours: int, was_sent_before: bool, amount: str, process_types: list[str]
) -> None:
    refund_id = ids.make_timed_id(int(NOW - hours * 3600) * 1000, 7)
    request = refund_request(refund_id=refund_id, was_sent_before=was_sent_before)
    recorded = list[bytes]()
    response = refund_list(f'amount="{amount}" status="RF" referenceNo="1"')
    async with serve_responses(
        reply("200 OK", response, "Connection: close"), recorded
    ) as server_url:
        report = await gateway.refund(account_at(server_url), request)
    assert [fields["processType"] for fields in decrypt_requests(recorded)] == process_types
    assert isinstance(report, OutcomeUnknown)


@pytest.mark.parametrize(
    ("listing", "was_sent_before", "declined"),
    [
        (refund_list('amount="25.00" status="RP" referenceNo="1"'), False, True),
        (refund_list('amount="25.00" status="RP" referenceNo="1"'), True, False),
        (refund_list('amount="24.00" status="RP" referenceNo="1"'), True, True),
        (refund_list(), True, True),
        (refund_list(respCode="16"), True, True),
        (refund_list(respCode="99"), True, False),
        (b"nothing readable", True, False),
    ],
    ids=range(7),
)
async def test_a_repeated_refund_is_not_declined_if_the_first_request_may_be_listed(
    gateway: TwoC2pGateway, listing: bytes, was_sent_before: bool, declined: bool
) -> None:
    refusal = make_response(respCode="13", status="")
    responses = [reply("200 OK", item, "Connection: close") for item in (refusal, listing)]
    async with serve_responses(responses) as server_url:
        report = await gateway.refund(
            account_at(server_url), refund_request(was_sent_before=was_sent_before)
        )
    if declined:
        assert isinstance(report, RefundReport)
        assert report.state is GatewayRefundState.DECLINED
    else:
        assert isinstance(report, OutcomeUnknown)


@pytest.mark.parametrize(
    ("refunds", "state"),
    [
        (['amount="25.00" status="RP"'], "pending"),
        (['amount="25.00" status="RF"', 'amount="24.00" status="RR"'], "done"),
        (['amount="25.00" status="RF"', 'amount="25.00" status="RF"'], "done"),
        (['amount="25.00" status="RF"', 'amount="25.00" status="RR"'], None),
        (['amount="24.00" status="RF"'], None),
        ([], None),
    ],
    ids=range(6),
)
async def test_an_accepted_refund_without_a_reference_has_the_state_of_its_candidates(
    gateway: TwoC2pGateway, refunds: list[str], state: str | None
) -> None:
    request = refund_request()
    accepted = await send_refund(
        gateway, make_response(respCode="42", status="RP", referenceNo="1"), request
    )
    assert isinstance(accepted, RefundReport)
    assert accepted.state is GatewayRefundState.PENDING
    assert accepted.reference == f"{INVOICE}-R"
    completed = replace(request.capture, reference=f"{INVOICE}.43")
    request = replace(request, reference=accepted.reference, capture=completed)
    report = await send_inquiry(gateway, refund_list(*refunds), request)
    if state is None:
        assert isinstance(report, OutcomeUnknown)
        assert report.has_responded
    else:
        assert isinstance(report, RefundReport)
        assert (report.state, report.reference) == (state, accepted.reference)


async def test_a_refund_is_absent_if_its_transaction_is_not_found(
    gateway: TwoC2pGateway,
) -> None:
    report = await send_inquiry(gateway, refund_list(respCode="16"), refund_request())
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.ABSENT
    for code in ("12", "42", "99"):
        other_report = await send_inquiry(gateway, refund_list(respCode=code), refund_request())
        assert isinstance(other_report, OutcomeUnknown)
        assert other_report.has_responded


@pytest.mark.parametrize(("status", "state"), [("V", "done"), ("VP", "pending")])
async def test_a_void_counts_only_as_a_full_refund(
    gateway: TwoC2pGateway, status: str, state: str
) -> None:
    whole = await send_inquiry(
        gateway, refund_list(status=status), refund_request(amount_minor=159_000)
    )
    part = await send_inquiry(gateway, refund_list(status=status), refund_request())
    assert isinstance(whole, RefundReport)
    assert isinstance(part, RefundReport)
    assert whole.state is GatewayRefundState(state)
    assert part.state is GatewayRefundState.ABSENT


async def test_an_unsettled_payment_is_voided_in_full_and_not_partially_refunded(
    gateway: TwoC2pGateway, url: str, buyer: Shop
) -> None:
    account = account_at(url)
    order, token = await buyer.token()
    await buyer.press(token["webPaymentUrl"], card=UNSETTLED)
    reference = f"{order['invoiceNo']}.1"
    capture = Capture(reference=reference, amount_minor=159_000, currency="THB")
    part = await gateway.refund(account, refund_request(capture=capture))
    assert isinstance(part, RefundReport)
    assert part.state is GatewayRefundState.DECLINED
    assert (
        await refund_state(gateway, account, refund_request(capture=capture))
        is GatewayRefundState.ABSENT
    )
    whole = refund_request(capture=capture, amount_minor=159_000)
    report = await gateway.refund(account, whole)
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.DONE
    assert await refund_state(gateway, account, whole) is GatewayRefundState.DONE
    assert (await buyer.get_invoice(order["invoiceNo"]))["refunded"] == "1590.00"
    assert await gateway.refund(account, whole) == report
    assert isinstance(await gateway.refund(account, refund_request(capture=capture)), RefundReport)


async def refund_state(
    gateway: TwoC2pGateway, account: GatewayAccount, request: GatewayRefundRequest
) -> GatewayRefundState:
    report = await gateway.inquire_refund(account, request)
    assert isinstance(report, RefundReport), report
    return report.state


async def test_a_merchant_unknown_to_the_maintenance_api_is_a_credential_problem(
    http: GatewayHttpClient, url: str
) -> None:
    """This happens, for example, if a merchant in Indonesia uses the global endpoint."""
    response = make_response(respCode="14", respDesc="Invalid merchant ID.", processType="RS")
    async with serve_responses(reply("200 OK", response)) as maintenance_url:
        account = account_at(url, maintenance_url=maintenance_url)
        result = await TwoC2pGateway(http).check_account(account)
    assert result.problem is AccountProblem.CREDENTIALS
    assert "result 14" in result.detail
