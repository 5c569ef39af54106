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
from tests.gateways.speaking import reply, speaking
from tests.gateways.test_twoc2p import account_at
from tests.sandbox.twoc2p.running import MERCHANT, UNSETTLED, Shop, pair, running_twoc2p

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


def wish(**changes: Any) -> GatewayRefundRequest:
    usual = GatewayRefundRequest(
        refund_id=uuid4(),
        reference=None,
        session=None,
        capture=Capture(reference=f"{INVOICE}.42", amount_minor=159_000, currency="THB"),
        amount_minor=25_00,
        reason="requested",
        destination=None,
        callback_url="https://ours.example/callback",
    )
    return replace(usual, **changes)


def answer(inner: str = "", *, root: str = "PaymentProcessResponse", **fields: str) -> bytes:
    """Return an encrypted response like the gateway."""
    usual = {"respCode": "00", "processType": "R", "invoiceNo": INVOICE, "status": "RF"}
    told = "".join(f"<{name}>{text}</{name}>" for name, text in (usual | fields).items())
    return sealed(f"<{root}>{told}{inner}</{root}>".encode())


def sealed(content: bytes) -> bytes:
    merchant, own = read_public(pair(MERCHANT)[1]), read_private(pair("gateway")[0])
    return envelope.seal(content, merchant, own).encode()


async def refunded(
    gateway: TwoC2pGateway, said: bytes, request: GatewayRefundRequest | None = None
) -> RefundReport | OutcomeUnknown:
    async with speaking(reply("200 OK", said)) as nobody:
        return await gateway.refund(account_at(nobody), request or wish())


async def inquired(
    gateway: TwoC2pGateway, said: bytes, request: GatewayRefundRequest
) -> RefundReport | OutcomeUnknown:
    async with speaking(reply("200 OK", said)) as nobody:
        return await gateway.inquire_refund(account_at(nobody), request)


async def requests(gateway: TwoC2pGateway, request: GatewayRefundRequest) -> list[dict[str, str]]:
    """Refund an unsettled payment, then inquire; return the requests."""
    asked = list[bytes]()
    refusal = answer(respCode="12", processType="", invoiceNo="", status="")
    async with speaking(reply("200 OK", refusal, "Connection: close"), asked) as nobody:
        await gateway.refund(account_at(nobody), request)
        await gateway.inquire_refund(account_at(nobody), request)
    return opened(asked)


def opened(asked: list[bytes]) -> list[dict[str, str]]:
    """Return the fields of each encrypted request."""
    merchant, own = read_public(pair(MERCHANT)[1]), read_private(pair("gateway")[0])
    sent: list[dict[str, str]] = []
    for item in asked:
        head, _, body = item.partition(b"\r\n\r\n")
        assert head.startswith(b"POST /PaymentAction/2.0/action HTTP/1.1\r\n")
        assert b"Content-Type: text/plain\r\n" in head
        root = ET.fromstring(envelope.unseal(body.decode(), merchant, own))  # noqa: S314 - ours
        assert root.tag == "PaymentProcessRequest"
        sent.append({child.tag: child.text or "" for child in root})
    return sent


async def test_refund_void_and_inquiry_requests_have_the_documented_fields(
    gateway: TwoC2pGateway,
) -> None:
    request = wish(amount_minor=159_000)
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
    ("base_url", "given", "expected"),
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
def test_the_maintenance_api_has_its_own_host(base_url: str, given: str, expected: str) -> None:
    assert _maintenance_url(account_at(base_url, maintenance_url=given)) == expected
    known = {*TwoC2pGateway.capabilities.origins, "https://own.example"}
    assert expected.partition("/2C2PFrontend")[0].partition("/PaymentAction")[0] in known


@pytest.mark.parametrize(("status", "state"), sorted(REFUND_STATES.items()))
async def test_every_documented_status_maps_to_a_refund_state(
    gateway: TwoC2pGateway, status: str, state: GatewayRefundState
) -> None:
    report = await refunded(gateway, answer(status=status, refundReferenceNo="77"))
    assert isinstance(report, RefundReport)
    assert (report.state, report.reference) == (state, "77")


async def test_an_accepted_refund_with_an_undocumented_status_is_pending(
    gateway: TwoC2pGateway,
) -> None:
    report = await refunded(gateway, answer(status="ZZ"))
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.PENDING


@pytest.mark.parametrize("code", sorted(REFUSED))
async def test_every_documented_refusal_declines_a_partial_refund(
    gateway: TwoC2pGateway, code: str
) -> None:
    for fields in ({}, {"processType": "", "invoiceNo": ""}):
        report = await refunded(gateway, answer(respCode=code, status="", **fields))
        assert isinstance(report, RefundReport)
        assert report.state is GatewayRefundState.DECLINED


@pytest.mark.parametrize("code", ["29", "50", "51", "52", "53", "95", "98", "99", "77", "0000"])
async def test_an_inconclusive_result_code_is_unknown(gateway: TwoC2pGateway, code: str) -> None:
    report = await refunded(gateway, answer(respCode=code))
    assert isinstance(report, OutcomeUnknown)
    assert not isinstance(report, NotContacted)


@pytest.mark.parametrize(
    "said",
    [
        answer(invoiceNo="another"),
        answer(processType="V"),
        answer(processType=""),
        answer(respCode="40", invoiceNo="another"),
        answer(root="OtherResponse"),
        answer(respCode=""),
        sealed(b"<PaymentProcessResponse>"),
        sealed(b""),
        sealed(b"\xff\xfe"),
        answer(respDesc="long " * 8_500),
        b"",
        b"Unable to decrypt",
        b"<PaymentProcessResponse><respCode>00</respCode></PaymentProcessResponse>",
    ],
    ids=range(13),
)
async def test_an_invalid_response_is_unknown(gateway: TwoC2pGateway, said: bytes) -> None:
    assert isinstance(await refunded(gateway, said), OutcomeUnknown)


async def test_a_signed_response_with_an_http_error_status_is_unknown(
    gateway: TwoC2pGateway,
) -> None:
    async with speaking(reply("500 Oops", answer())) as nobody:
        assert isinstance(await gateway.refund(account_at(nobody), wish()), OutcomeUnknown)


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
    assert isinstance(await refunded(gateway, sealed(content)), OutcomeUnknown)


async def test_an_amount_that_2c2p_cannot_refund_is_declined_without_a_request(
    gateway: TwoC2pGateway,
) -> None:
    """Orders never contain a fraction of a rupiah, but a deviating capture can."""
    capture = Capture(reference=f"{INVOICE}.42", amount_minor=159_050, currency="IDR")
    asked = list[bytes]()
    async with speaking(reply("200 OK", b""), asked) as nobody:
        request = wish(capture=capture, amount_minor=159_050)
        told = await gateway.refund(account_at(nobody), request)
        inquired = await gateway.inquire_refund(account_at(nobody), request)
    assert isinstance(told, RefundReport)
    assert told.state is GatewayRefundState.DECLINED
    assert isinstance(inquired, NotContacted)
    assert asked == []


async def test_no_request_is_sent_if_the_keys_cannot_be_read(gateway: TwoC2pGateway) -> None:
    asked: list[bytes] = []
    async with speaking(reply("200 OK", answer()), asked) as nobody:
        for changes in ({"merchant_private_key": "x"}, {"gateway_public_key": ""}):
            report = await gateway.refund(account_at(nobody, **changes), wish())
            assert isinstance(report, NotContacted)
    assert asked == []


def listed(*refunds: str, **fields: str) -> bytes:
    items = "".join(f"<refund {refund}/>" for refund in refunds)
    return answer(f"<refundList>{items}</refundList>", processType="RS", **{"status": "S"} | fields)


async def test_a_refund_is_identified_by_its_reference(gateway: TwoC2pGateway) -> None:
    said = listed(
        'amount="25.00" status="RR" referenceNo="76"', 'amount="25.00" status="RF" referenceNo="77"'
    )
    report = await inquired(gateway, said, wish(reference="77"))
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
    report = await inquired(gateway, listed(*refunds), wish(reference=reference))
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.ABSENT
    assert gateway.capabilities.refund_is_idempotent


@pytest.mark.parametrize(("hours", "again"), [(0, True), (23, True), (25, False)])
async def test_a_refund_that_may_be_listed_is_absent_only_for_a_day(
    gateway: TwoC2pGateway, hours: int, again: bool
) -> None:
    refund_id = ids.make_timed_id(int(NOW - hours * 3600) * 1000, 7)
    for refunds in (['amount="25.00" status="RF" referenceNo="1"'], []):
        report = await inquired(gateway, listed(*refunds), wish(refund_id=refund_id))
        if again or not refunds:
            assert isinstance(report, RefundReport)
            assert report.state is GatewayRefundState.ABSENT
        else:
            assert isinstance(report, OutcomeUnknown)
            assert report.has_responded


@pytest.mark.parametrize(
    ("hours", "was_sent_before", "amount", "sent"),
    [
        (0, True, "25.00", ["R"]),
        (23, True, "25.00", ["R"]),
        (25, False, "25.00", ["R"]),
        (25, True, "25.00", ["RS"]),
        (25, True, "24.00", ["RS", "R"]),
    ],
)
async def test_a_refund_older_than_a_day_is_queried_before_it_is_sent_again(
    gateway: TwoC2pGateway, hours: int, was_sent_before: bool, amount: str, sent: list[str]
) -> None:
    refund_id = ids.make_timed_id(int(NOW - hours * 3600) * 1000, 7)
    request = wish(refund_id=refund_id, was_sent_before=was_sent_before)
    asked = list[bytes]()
    said = listed(f'amount="{amount}" status="RF" referenceNo="1"')
    async with speaking(reply("200 OK", said, "Connection: close"), asked) as nobody:
        report = await gateway.refund(account_at(nobody), request)
    assert [fields["processType"] for fields in opened(asked)] == sent
    assert isinstance(report, OutcomeUnknown)


@pytest.mark.parametrize(
    ("listing", "was_sent_before", "declined"),
    [
        (listed('amount="25.00" status="RP" referenceNo="1"'), False, True),
        (listed('amount="25.00" status="RP" referenceNo="1"'), True, False),
        (listed('amount="24.00" status="RP" referenceNo="1"'), True, True),
        (listed(), True, True),
        (listed(respCode="16"), True, True),
        (listed(respCode="99"), True, False),
        (b"nothing readable", True, False),
    ],
    ids=range(7),
)
async def test_a_repeated_refund_is_not_declined_if_the_first_request_may_be_listed(
    gateway: TwoC2pGateway, listing: bytes, was_sent_before: bool, declined: bool
) -> None:
    refusal = answer(respCode="13", status="")
    said = [reply("200 OK", item, "Connection: close") for item in (refusal, listing)]
    async with speaking(said) as nobody:
        report = await gateway.refund(account_at(nobody), wish(was_sent_before=was_sent_before))
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
    request = wish()
    accepted = await refunded(gateway, answer(respCode="42", status="RP", referenceNo="1"), request)
    assert isinstance(accepted, RefundReport)
    assert accepted.state is GatewayRefundState.PENDING
    assert accepted.reference == f"{INVOICE}-R"
    completed = replace(request.capture, reference=f"{INVOICE}.43")
    request = replace(request, reference=accepted.reference, capture=completed)
    report = await inquired(gateway, listed(*refunds), request)
    if state is None:
        assert isinstance(report, OutcomeUnknown)
        assert report.has_responded
    else:
        assert isinstance(report, RefundReport)
        assert (report.state, report.reference) == (state, accepted.reference)


async def test_a_refund_is_absent_if_its_transaction_is_not_found(
    gateway: TwoC2pGateway,
) -> None:
    report = await inquired(gateway, listed(respCode="16"), wish())
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.ABSENT
    for code in ("12", "42", "99"):
        told = await inquired(gateway, listed(respCode=code), wish())
        assert isinstance(told, OutcomeUnknown)
        assert told.has_responded


@pytest.mark.parametrize(("status", "state"), [("V", "done"), ("VP", "pending")])
async def test_a_void_counts_only_as_a_full_refund(
    gateway: TwoC2pGateway, status: str, state: str
) -> None:
    whole = await inquired(gateway, listed(status=status), wish(amount_minor=159_000))
    part = await inquired(gateway, listed(status=status), wish())
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
    part = await gateway.refund(account, wish(capture=capture))
    assert isinstance(part, RefundReport)
    assert part.state is GatewayRefundState.DECLINED
    assert await stands(gateway, account, wish(capture=capture)) is GatewayRefundState.ABSENT
    whole = wish(capture=capture, amount_minor=159_000)
    report = await gateway.refund(account, whole)
    assert isinstance(report, RefundReport)
    assert report.state is GatewayRefundState.DONE
    assert await stands(gateway, account, whole) is GatewayRefundState.DONE
    assert (await buyer.get_invoice(order["invoiceNo"]))["refunded"] == "1590.00"
    assert await gateway.refund(account, whole) == report
    assert isinstance(await gateway.refund(account, wish(capture=capture)), RefundReport)


async def stands(
    gateway: TwoC2pGateway, account: GatewayAccount, request: GatewayRefundRequest
) -> GatewayRefundState:
    report = await gateway.inquire_refund(account, request)
    assert isinstance(report, RefundReport), report
    return report.state


async def test_a_merchant_unknown_to_the_maintenance_api_is_a_credential_problem(
    http: GatewayHttpClient, url: str
) -> None:
    """For example, if a merchant in Indonesia is configured with the global endpoint."""
    stranger = answer(respCode="14", respDesc="Invalid merchant ID.", processType="RS")
    async with speaking(reply("200 OK", stranger)) as elsewhere:
        account = account_at(url, maintenance_url=elsewhere)
        checked = await TwoC2pGateway(http).check_account(account)
    assert checked.problem is AccountProblem.CREDENTIALS
    assert "result 14" in checked.detail
