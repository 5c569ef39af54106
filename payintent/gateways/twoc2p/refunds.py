"""2C2P's maintenance API: refunds, voids and inquiries, as encrypted and signed XML.

A settled payment can be refunded fully or partially. An unsettled payment cannot be refunded, but
it can be voided in full until the end of the acquirer's day, which has the same effect.

2C2P returns its first response when an `idempotencyID` is repeated, so refunds can be sent again.
The list of refunds does not contain our ids, so the outcome of a refund without a response is found
by sending it again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from payintent.core import ids
from payintent.gateways.http_client import (
    GatewayHttpClient,
    inconclusive_response,
    unusable_response,
)
from payintent.gateways.port import (
    AccountProblem,
    GatewayAccount,
    GatewayRefundRequest,
    GatewayRefundState,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
    RefundResult,
)
from payintent.gateways.twoc2p import response_codes as codes
from payintent.gateways.twoc2p.messages import (
    MAINTENANCE_PATH,
    MAINTENANCE_URLS,
    InvalidTokenError,
    format_action_amount,
    parse_order_amount,
)

VERSION = "4.3"
REFUND_TIMEOUT_S = 15.0  # for a refund and a void together
XML_BYTES_MAX = 40 * 1024  # enough for about 250 listed refunds
DETAIL_CHARS_MAX = 200
#: How long 2C2P is assumed to remember an `idempotencyID`; it documents no period.
REPLAY_WINDOW_S = 24 * 3600

_OK = 200
_ABSENT = GatewayRefundState.ABSENT
_TIMED_VERSIONS = frozenset({7, 8})
#: Suffixes of our id in the idempotency key. If a void had the refund's key, 2C2P would repeat its
#: rejection of the refund. Queries have no key, because 2C2P would repeat an earlier response.
_IDEMPOTENCY_SUFFIXES = {"R": "", "V": "-void"}


@dataclass(frozen=True, slots=True)
class _ListedRefund:
    amount: str
    status: str
    reference: str


@dataclass(frozen=True, slots=True)
class _Reply:
    code: str
    description: str
    process: str
    invoice: str
    status: str
    reference: str | None
    refunds: tuple[_ListedRefund, ...]

    @property
    def detail(self) -> str:
        return f"result {self.code} {self.status}: {self.description[:DETAIL_CHARS_MAX]}"


class TwoC2pRefundApi:
    def __init__(self, http: GatewayHttpClient, now: Callable[[], float]) -> None:
        self._http = http
        self._now = now

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        """Refund or void a payment. A repeated request has no further effect.

        After a day, 2C2P may have forgotten the first request, so the refund is queried first.
        """
        try:
            async with asyncio.timeout(REFUND_TIMEOUT_S):
                return await self._refund(account, request)
        except TimeoutError:
            return OutcomeUnknown(detail=f"no response within {REFUND_TIMEOUT_S:g} s")

    async def inquire(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        total = request.capture.amount_minor
        reply = await self._request(account, request, "RS", total)
        if isinstance(reply, OutcomeUnknown):
            return reply
        if reply.code == codes.NO_TRANSACTION:
            return RefundReport(state=GatewayRefundState.ABSENT, detail=reply.detail)
        if reply.code != codes.DONE:
            return inconclusive_response(reply.detail)
        if reply.status in codes.VOIDS and request.amount_minor == total:
            return _accepted_report(reply.status, _substitute_reference(request, "V"), reply.detail)
        return _identify_refund(reply, request, self._now())

    async def _refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        try:
            format_action_amount(request.amount_minor, request.capture.currency)
        except ValueError as error:  # 2C2P cannot represent this amount
            return RefundReport(state=GatewayRefundState.DECLINED, detail=str(error))
        if request.sent_before and _age_s(request, self._now()) > REPLAY_WINDOW_S:
            earlier = await self.inquire(account, request)
            if isinstance(earlier, OutcomeUnknown):
                return earlier
            if earlier.state is not GatewayRefundState.ABSENT:
                return earlier
        reply = await self._request(account, request, "R", request.amount_minor)
        is_full = request.amount_minor == request.capture.amount_minor
        if isinstance(reply, _Reply) and reply.code in codes.UNREFUNDABLE and is_full:
            # The refund was certainly not made, so the void is not a second refund.
            reply = await self._request(account, request, "V", request.amount_minor)
        if isinstance(reply, OutcomeUnknown):
            return reply
        if request.sent_before and reply.code in codes.REFUSED:
            return await self._decline_repeated(account, request, reply)
        return _refund_report(reply, request)

    async def _decline_repeated(
        self, account: GatewayAccount, request: GatewayRefundRequest, rejection: _Reply
    ) -> RefundResult:
        """Report a rejected repetition as declined, unless the first request may have succeeded."""
        total = request.capture.amount_minor
        reply = await self._request(account, request, "RS", total)
        if isinstance(reply, OutcomeUnknown):
            return reply
        is_voided = reply.status in codes.VOIDS and request.amount_minor == total
        is_listed = is_voided or any(_may_match(item, request) for item in reply.refunds)
        if reply.code == codes.NO_TRANSACTION or (reply.code == codes.DONE and not is_listed):
            return _refund_report(rejection, request)
        return inconclusive_response(f"rejected when sent again: {rejection.detail}")

    async def _request(
        self,
        account: GatewayAccount,
        request: GatewayRefundRequest,
        process: str,
        amount_minor: int,
    ) -> _Reply | OutcomeUnknown:
        # Imported here because its libraries are large and most processes do not make refunds.
        from payintent.gateways.twoc2p import sealed

        keys = sealed.TwoC2pKeys(
            account.credentials.get("merchant_private_key", ""),
            account.credentials.get("gateway_public_key", ""),
        )
        try:
            order = self._encode_order(account, request, process, amount_minor)
        except ValueError as error:
            return NotContacted(detail=str(error))
        try:
            body = sealed.encrypt_and_sign(order, keys).encode()
        except ValueError:
            return NotContacted(
                detail="the account's keys for refunds are invalid",
                problem=AccountProblem.CREDENTIALS,
            )
        response = await self._http.request(
            "POST", _maintenance_url(account), headers={"Content-Type": "text/plain"}, body=body
        )
        if isinstance(response, OutcomeUnknown):
            return response
        try:
            reply = _parse_reply(sealed.verify_and_decrypt(response.body.decode().strip(), keys))
        except (InvalidTokenError, ValueError):
            return replace(
                unusable_response(response.status, f"invalid response, status {response.status}"),
                problem=AccountProblem.CREDENTIALS,  # probably, the keys do not match
            )
        if response.status != _OK or not _is_reply_to(reply, process, _invoice(request)):
            detail = f"status {response.status}: {reply.detail}"
            return inconclusive_response(detail)
        return reply

    def _encode_order(
        self,
        account: GatewayAccount,
        request: GatewayRefundRequest,
        process: str,
        amount_minor: int,
    ) -> bytes:
        refund_id = ids.format_id(ids.REFUND, request.refund_id)
        now = datetime.fromtimestamp(self._now(), UTC)
        root = ET.Element("PaymentProcessRequest")
        fields = {
            "version": VERSION,
            "timeStamp": now.strftime("%d%m%y%H%M%S"),
            "merchantID": account.credentials.get("merchant_id", ""),
            "processType": process,
            "invoiceNo": _invoice(request),
            "actionAmount": format_action_amount(amount_minor, request.capture.currency),
            "userDefined1": refund_id,
        }
        if process in _IDEMPOTENCY_SUFFIXES:
            fields["idempotencyID"] = f"{refund_id}{_IDEMPOTENCY_SUFFIXES[process]}"
        for tag, text in fields.items():
            ET.SubElement(root, tag).text = text
        return ET.tostring(root, encoding="utf-8")


def _maintenance_url(account: GatewayAccount) -> str:
    base = account.base_url.rstrip("/")
    url = account.credentials.get("maintenance_url") or MAINTENANCE_URLS.get(base)
    return url or f"{base}{MAINTENANCE_PATH}"


def _invoice(request: GatewayRefundRequest) -> str:
    return request.capture.reference.rpartition(".")[0]


def _is_reply_to(reply: _Reply, process: str, invoice: str) -> bool:
    """Return whether a reply belongs to this request. Rejections may omit some fields."""
    if reply.code in codes.REFUSED:
        return reply.process in {"", process} and reply.invoice in {"", invoice}
    return (reply.process, reply.invoice) == (process, invoice)


def _refund_report(reply: _Reply, request: GatewayRefundRequest) -> RefundResult:
    reference = reply.reference or _substitute_reference(request, reply.process)
    if reply.code == codes.DONE:
        return _accepted_report(reply.status, reference, reply.detail)
    if reply.code == codes.REFUND_PENDING:
        return RefundReport(
            state=GatewayRefundState.PENDING, reference=reference, detail=reply.detail
        )
    if reply.code in codes.REFUSED:
        return RefundReport(
            state=GatewayRefundState.DECLINED, reference=reply.reference, detail=reply.detail
        )
    return inconclusive_response(reply.detail)


def _substitute_reference(request: GatewayRefundRequest, process: str) -> str:
    """Return our own reference for a refund that 2C2P accepted without assigning a reference.

    It contains only the invoice, because the capture's reference may be completed later.
    """
    return f"{_invoice(request)}-{process}"


def _accepted_report(status: str, reference: str | None, detail: str) -> RefundReport:
    state = codes.REFUND_STATES.get(status, GatewayRefundState.PENDING)
    return RefundReport(state=state, reference=reference, detail=detail)


def _identify_refund(reply: _Reply, request: GatewayRefundRequest, now: float) -> RefundResult:
    """Find our refund in the list of its invoice's refunds, and report its state.

    A refund that was accepted without a reference has the state of the listed refunds with the same
    amount, if their states agree. A refund that is not known to be accepted is ABSENT even if it
    may be listed, because sending it again either returns the first response or performs it. After
    a day, 2C2P may have forgotten the first response, so the outcome is unknown.
    """
    for item in reply.refunds:
        if item.reference and item.reference == request.reference:
            return _accepted_report(item.status, item.reference, f"refund {item.status}")
    candidates = [item for item in reply.refunds if _may_match(item, request)]
    unknown = inconclusive_response(f"{len(candidates)} listed refunds may be this refund")
    if request.reference != _substitute_reference(request, "R"):
        if candidates and _age_s(request, now) > REPLAY_WINDOW_S:
            return unknown
        return RefundReport(state=GatewayRefundState.ABSENT, detail="not among the refunds")
    reports = [_accepted_report(item.status, request.reference, item.status) for item in candidates]
    if len({report.state for report in reports}) == 1:
        return reports[0]
    return unknown


def _age_s(request: GatewayRefundRequest, now: float) -> float:
    """Return the age of a refund, or 0 if its id contains no timestamp."""
    has_timestamp = request.refund_id.version in _TIMED_VERSIONS
    return now - ids.get_unix_ms(request.refund_id) / 1000 if has_timestamp else 0


def _may_match(item: _ListedRefund, request: GatewayRefundRequest) -> bool:
    try:
        return parse_order_amount(item.amount, request.capture.currency) == request.amount_minor
    except ValueError:
        return True


def _parse_reply(content: bytes) -> _Reply:
    """Parse a reply. Raises `ValueError` if it is invalid.

    XML of this size is only dangerous if it has entities, which require a document type. The reply
    is decoded before parsing, so that an encoding declaration cannot hide a document type.
    """
    text = content.decode()
    if len(content) > XML_BYTES_MAX or "<!" in text:
        raise ValueError("the XML is too large or has a document type")
    try:
        root = ET.fromstring(text)  # noqa: S314 - see above
    except ET.ParseError:
        raise ValueError("the XML is malformed") from None
    code = root.findtext("respCode")
    if root.tag != "PaymentProcessResponse" or not code:
        raise ValueError("the XML is not a response")
    return _Reply(
        code=code,
        description=root.findtext("respDesc") or "",
        process=root.findtext("processType") or "",
        invoice=root.findtext("invoiceNo") or "",
        status=root.findtext("status") or "",
        reference=root.findtext("refundReferenceNo") or None,
        refunds=tuple(
            _ListedRefund(
                amount=refund.get("amount", ""),
                status=refund.get("status", ""),
                reference=refund.get("referenceNo", ""),
            )
            for refund in root.iterfind("refundList/refund")
        ),
    )
