"""2C2P's maintenance API: refunds, voids and inquiries, as encrypted and signed XML.

A settled payment can be refunded in full or in parts. An unsettled payment cannot be refunded, but
it can be voided in full until the end of the acquirer's day, which has the same effect.

2C2P responds to a repeated `idempotencyID` with its first response, so refunds can be sent again.
The refund list does not contain our ids, so a refund without a response is identified by sending
it again.
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
from payintent.gateways.twoc2p.jwt import InvalidTokenError
from payintent.gateways.twoc2p.messages import (
    MAINTENANCE_PATH,
    MAINTENANCE_URLS,
    format_action_amount,
    parse_order_amount,
)

VERSION = "4.3"
BOTH_TIMEOUT_S = 15.0  # for a refund and a void together
XML_BYTES_MAX = 40 * 1024  # a list of about 250 refunds
DETAIL_CHARS_MAX = 200
REPEATABLE_FOR_S = 24 * 3600  # our assumption: 2C2P does not document the life of an idempotencyID

_OK = 200
_ABSENT = GatewayRefundState.ABSENT
_TIMED_VERSIONS = frozenset({7, 8})
#: Suffixes of our id. A void with the key of the refund would get the refund's refusal, and a query
#: with a key would get the response of an earlier query.
_IDEMPOTENCY_SUFFIXES = {"R": "", "V": "-void"}


@dataclass(frozen=True, slots=True)
class _Item:
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
    items: tuple[_Item, ...]

    @property
    def detail(self) -> str:
        return f"result {self.code} {self.status}: {self.description[:DETAIL_CHARS_MAX]}"


class TwoC2pRefundApi:
    def __init__(self, http: GatewayHttpClient, now: Callable[[], float]) -> None:
        self._http = http
        self._now = now

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        """Refund or void a payment; a repeated request has no further effect.

        After a day 2C2P may have forgotten the first request, so it is queried first.
        """
        try:
            async with asyncio.timeout(BOTH_TIMEOUT_S):
                return await self._refund(account, request)
        except TimeoutError:
            return OutcomeUnknown(detail=f"no response within {BOTH_TIMEOUT_S:g} s")

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
            return _accepted_report(reply.status, _own_reference(request, "V"), reply.detail)
        return _identify_refund(reply, request, self._now())

    async def _refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        try:
            format_action_amount(request.amount_minor, request.capture.currency)
        except ValueError as error:  # this amount can never be sent
            return RefundReport(state=GatewayRefundState.DECLINED, detail=str(error))
        if request.sent_before and _age_s(request, self._now()) > REPEATABLE_FOR_S:
            earlier = await self.inquire(account, request)
            if isinstance(earlier, OutcomeUnknown):
                return earlier
            if earlier.state is not GatewayRefundState.ABSENT:
                return earlier
        reply = await self._request(account, request, "R", request.amount_minor)
        is_full = request.amount_minor == request.capture.amount_minor
        if isinstance(reply, _Reply) and reply.code in codes.UNREFUNDABLE and is_full:
            # Certainly not refunded, so the void is not a second refund.
            reply = await self._request(account, request, "V", request.amount_minor)
        if isinstance(reply, OutcomeUnknown):
            return reply
        if request.sent_before and reply.code in codes.REFUSED:
            return await self._decline_repeated(account, request, reply)
        return _refund_report(reply, request)

    async def _decline_repeated(
        self, account: GatewayAccount, request: GatewayRefundRequest, refusal: _Reply
    ) -> RefundResult:
        """Decline a refused repetition, unless the first request may have succeeded."""
        total = request.capture.amount_minor
        reply = await self._request(account, request, "RS", total)
        if isinstance(reply, OutcomeUnknown):
            return reply
        is_voided = reply.status in codes.VOIDS and request.amount_minor == total
        is_listed = is_voided or any(_may_match(item, request) for item in reply.items)
        if reply.code == codes.NO_TRANSACTION or (reply.code == codes.DONE and not is_listed):
            return _refund_report(refusal, request)
        return inconclusive_response(f"refused when sent again: {refusal.detail}")

    async def _request(
        self,
        account: GatewayAccount,
        request: GatewayRefundRequest,
        process: str,
        amount_minor: int,
    ) -> _Reply | OutcomeUnknown:
        # Imported when used: its libraries are large, and most processes do not refund.
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
        answer = await self._http.request(
            "POST", _maintenance_url(account), headers={"Content-Type": "text/plain"}, body=body
        )
        if isinstance(answer, OutcomeUnknown):
            return answer
        try:
            reply = _parse_reply(sealed.verify_and_decrypt(answer.body.decode().strip(), keys))
        except (InvalidTokenError, ValueError):
            return replace(
                unusable_response(answer.status, f"invalid response, status {answer.status}"),
                problem=AccountProblem.CREDENTIALS,  # our keys probably do not match
            )
        if answer.status != _OK or not _is_reply_to(reply, process, _invoice(request)):
            detail = f"status {answer.status}: {reply.detail}"
            return inconclusive_response(detail)
        return reply

    def _encode_order(
        self,
        account: GatewayAccount,
        request: GatewayRefundRequest,
        process: str,
        amount_minor: int,
    ) -> bytes:
        name = ids.format_id(ids.REFUND, request.refund_id)
        moment = datetime.fromtimestamp(self._now(), UTC)
        root = ET.Element("PaymentProcessRequest")
        fields = {
            "version": VERSION,
            "timeStamp": moment.strftime("%d%m%y%H%M%S"),
            "merchantID": account.credentials.get("merchant_id", ""),
            "processType": process,
            "invoiceNo": _invoice(request),
            "actionAmount": format_action_amount(amount_minor, request.capture.currency),
            "userDefined1": name,
        }
        if process in _IDEMPOTENCY_SUFFIXES:
            fields["idempotencyID"] = f"{name}{_IDEMPOTENCY_SUFFIXES[process]}"
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
    """Return True if a reply belongs to this request; refusals may omit some fields."""
    if reply.code in codes.REFUSED:
        return reply.process in {"", process} and reply.invoice in {"", invoice}
    return (reply.process, reply.invoice) == (process, invoice)


def _refund_report(reply: _Reply, request: GatewayRefundRequest) -> RefundResult:
    reference = reply.reference or _own_reference(request, reply.process)
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


def _own_reference(request: GatewayRefundRequest, process: str) -> str:
    """Return the reference of a refund that 2C2P accepted without a reference.

    It uses the invoice, because the capture's reference may be completed later.
    """
    return f"{_invoice(request)}-{process}"


def _accepted_report(status: str, reference: str | None, detail: str) -> RefundReport:
    state = codes.REFUND_STATES.get(status, GatewayRefundState.PENDING)
    return RefundReport(state=state, reference=reference, detail=detail)


def _identify_refund(reply: _Reply, request: GatewayRefundRequest, now: float) -> RefundResult:
    """Report our refund from the list of all refunds of its invoice.

    If it was accepted without a reference, its state is that of the refunds with its amount,
    provided that their states agree. If it is not known to be accepted, it is ABSENT even if it may
    be in the list: sending it again returns the first response or performs it. After a day 2C2P may
    have forgotten the first response, so the outcome is unknown and an operator must decide.
    """
    for item in reply.items:
        if item.reference and item.reference == request.reference:
            return _accepted_report(item.status, item.reference, f"refund {item.status}")
    candidates = [item for item in reply.items if _may_match(item, request)]
    unknown = inconclusive_response(f"{len(candidates)} listed refunds may be this refund")
    if request.reference != _own_reference(request, "R"):
        if candidates and _age_s(request, now) > REPEATABLE_FOR_S:
            return unknown
        return RefundReport(state=GatewayRefundState.ABSENT, detail="not among the refunds")
    reports = [_accepted_report(item.status, request.reference, item.status) for item in candidates]
    if len({report.state for report in reports}) == 1:
        return reports[0]
    return unknown


def _age_s(request: GatewayRefundRequest, now: float) -> float:
    """Return the age of a refund; 0 if its id does not contain a time."""
    is_timed = request.refund_id.version in _TIMED_VERSIONS
    return now - ids.unix_ms_of_timed(request.refund_id) / 1000 if is_timed else 0


def _may_match(item: _Item, request: GatewayRefundRequest) -> bool:
    try:
        return parse_order_amount(item.amount, request.capture.currency) == request.amount_minor
    except ValueError:
        return True


def _parse_reply(content: bytes) -> _Reply:
    """Parse a reply; ValueError if it is invalid.

    XML of this size is only dangerous because of entities, which need a document type. It is parsed
    as text, so that a declared encoding cannot hide a document type.
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
        items=tuple(
            _Item(
                amount=refund.get("amount", ""),
                status=refund.get("status", ""),
                reference=refund.get("referenceNo", ""),
            )
            for refund in root.iterfind("refundList/refund")
        ),
    )
