"""2C2P's maintenance API: refunds, voids and their inquiry, as encrypted and signed XML.

A settled payment can be refunded, in parts too. One that is not settled cannot be; until the
acquirer's day is over, the whole of it can be voided, which refunds it as well.

2C2P answers a repeated `idempotencyID` with its first answer, so a refund may be sent again. Its
list of refunds has no name of ours, so a refund whose first answer was lost is identified by
sending it again.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from payintent.domain import ids
from payintent.domain.gateway import (
    AccountProblem,
    GatewayAccount,
    GatewayRefundRequest,
    GatewayRefundState,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
)
from payintent.gateways.http_client import GatewayHttpClient, unusable
from payintent.gateways.twoc2p import response_codes as codes
from payintent.gateways.twoc2p.addresses import MAINTENANCE_PATH, MAINTENANCE_URLS
from payintent.gateways.twoc2p.amounts import format_refund_amount, parse_order_amount
from payintent.gateways.twoc2p.jwt import InvalidTokenError

VERSION = "4.3"
BOTH_TIMEOUT_S = 15.0  # a refund and a void together
XML_BYTES_MAX = 40 * 1024  # a list of some 250 refunds
DETAIL_CHARS_MAX = 200
REPEATABLE_FOR_S = 24 * 3600  # 2C2P does not publish for how long it remembers an idempotencyID

_OK = 200
_ABSENT = GatewayRefundState.ABSENT
_TIMED_VERSIONS = frozenset({7, 8})
#: What follows our id. A void under a refund's key would be answered with the refund's refusal, and
#: a query under any key with an earlier query's answer.
_IDEMPOTENCY_IDS = {"R": "", "V": "-void"}


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

    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        """Refund or void a payment; sent again, it is done once.

        After a day 2C2P is queried first: by then it may have forgotten the first request.
        """
        try:
            async with asyncio.timeout(BOTH_TIMEOUT_S):
                return await self._refund(account, request)
        except TimeoutError:
            return OutcomeUnknown(detail=f"no answer within {BOTH_TIMEOUT_S:g} s")

    async def inquire(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        whole = request.capture.amount_minor
        reply = await self._ask(account, request, "RS", whole)
        if isinstance(reply, OutcomeUnknown):
            return reply
        if reply.code == codes.NO_TRANSACTION:
            return RefundReport(state=GatewayRefundState.ABSENT, detail=reply.detail)
        if reply.code != codes.DONE:
            return OutcomeUnknown(detail=reply.detail, answered=True)
        if reply.status in codes.VOIDS and request.amount_minor == whole:
            return _reported(reply.status, _own_reference(request, "V"), reply.detail)
        return _listed_refund(reply, request, self._now())

    async def _refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        try:
            format_refund_amount(request.amount_minor, request.capture.currency)
        except ValueError as error:  # nothing was sent, and nothing ever can be
            return RefundReport(state=GatewayRefundState.DECLINED, detail=str(error))
        if request.sent_before and _age_s(request, self._now()) > REPEATABLE_FOR_S:
            earlier = await self.inquire(account, request)
            if isinstance(earlier, OutcomeUnknown):
                return earlier
            if earlier.state is not GatewayRefundState.ABSENT:
                return earlier
        reply = await self._ask(account, request, "R", request.amount_minor)
        whole = request.amount_minor == request.capture.amount_minor
        if isinstance(reply, _Reply) and reply.code in codes.UNREFUNDABLE and whole:
            # Surely not refunded, so that nothing is refunded twice.
            reply = await self._ask(account, request, "V", request.amount_minor)
        if isinstance(reply, OutcomeUnknown):
            return reply
        if request.sent_before and reply.code in codes.REFUSED:
            return await self._decline_repeated(account, request, reply)
        return _answered(reply, request)

    async def _decline_repeated(
        self, account: GatewayAccount, request: GatewayRefundRequest, refusal: _Reply
    ) -> RefundReport | OutcomeUnknown:
        """Report a refused repetition as declined, unless the first request may have been done."""
        whole = request.capture.amount_minor
        reply = await self._ask(account, request, "RS", whole)
        if isinstance(reply, OutcomeUnknown):
            return reply
        is_voided = reply.status in codes.VOIDS and request.amount_minor == whole
        is_listed = is_voided or any(_may_be(item, request) for item in reply.items)
        if reply.code == codes.NO_TRANSACTION or (reply.code == codes.DONE and not is_listed):
            return _answered(refusal, request)
        return OutcomeUnknown(detail=f"refused when sent again: {refusal.detail}", answered=True)

    async def _ask(
        self,
        account: GatewayAccount,
        request: GatewayRefundRequest,
        process: str,
        amount_minor: int,
    ) -> _Reply | OutcomeUnknown:
        # Imported when used, because its libraries are large and most processes refund nothing.
        from payintent.gateways.twoc2p import sealed

        keys = sealed.TwoC2pKeys(
            account.credentials.get("merchant_private_key", ""),
            account.credentials.get("gateway_public_key", ""),
        )
        try:
            order = self._order(account, request, process, amount_minor)
        except ValueError as error:
            return NotContacted(detail=str(error))
        try:
            body = sealed.encrypt_and_sign(order, keys).encode()
        except ValueError:
            return NotContacted(
                detail="the account's keys for refunds cannot be read",
                problem=AccountProblem.CREDENTIALS,
            )
        answer = await self._http.request(
            "POST", _url(account), headers={"Content-Type": "text/plain"}, body=body
        )
        if isinstance(answer, OutcomeUnknown):
            return answer
        try:
            reply = _reply(sealed.verify_and_decrypt(answer.body.decode().strip(), keys))
        except (InvalidTokenError, ValueError):
            return replace(
                unusable(answer.status, f"unreadable answer, status {answer.status}"),
                problem=AccountProblem.CREDENTIALS,  # for what our keys cannot read
            )
        if answer.status != _OK or not _fits(reply, process, _invoice(request)):
            detail = f"status {answer.status}: {reply.detail}"
            return OutcomeUnknown(detail=detail, answered=True)
        return reply

    def _order(
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
            "actionAmount": format_refund_amount(amount_minor, request.capture.currency),
            "userDefined1": name,
        }
        if process in _IDEMPOTENCY_IDS:
            fields["idempotencyID"] = f"{name}{_IDEMPOTENCY_IDS[process]}"
        for tag, text in fields.items():
            ET.SubElement(root, tag).text = text
        return ET.tostring(root, encoding="utf-8")


def _url(account: GatewayAccount) -> str:
    given = account.credentials.get("maintenance_url")
    base = account.base_url.rstrip("/")
    return given or MAINTENANCE_URLS.get(base) or f"{base}{MAINTENANCE_PATH}"


def _invoice(request: GatewayRefundRequest) -> str:
    return request.capture.reference.rpartition(".")[0]


def _fits(reply: _Reply, process: str, invoice: str) -> bool:
    """Tell whether an answer is about this request; a refusal may leave out some fields."""
    if reply.code in codes.REFUSED:
        return reply.process in {"", process} and reply.invoice in {"", invoice}
    return (reply.process, reply.invoice) == (process, invoice)


def _answered(reply: _Reply, request: GatewayRefundRequest) -> RefundReport | OutcomeUnknown:
    reference = reply.reference or _own_reference(request, reply.process)
    if reply.code == codes.DONE:
        return _reported(reply.status, reference, reply.detail)
    if reply.code == codes.REFUND_PENDING:
        return RefundReport(
            state=GatewayRefundState.PENDING, reference=reference, detail=reply.detail
        )
    if reply.code in codes.REFUSED:
        return RefundReport(
            state=GatewayRefundState.DECLINED, reference=reply.reference, detail=reply.detail
        )
    return OutcomeUnknown(detail=reply.detail, answered=True)


def _own_reference(request: GatewayRefundRequest, process: str) -> str:
    """Return the reference of a refund that 2C2P accepted without one of its own.

    By the invoice: the capture's own reference may be completed later.
    """
    return f"{_invoice(request)}-{process}"


def _reported(status: str, reference: str | None, detail: str) -> RefundReport:
    # It was accepted, whatever else its status says.
    state = codes.REFUND_STATES.get(status, GatewayRefundState.PENDING)
    return RefundReport(state=state, reference=reference, detail=detail)


def _listed_refund(
    reply: _Reply, request: GatewayRefundRequest, now: float
) -> RefundReport | OutcomeUnknown:
    """Report our refund from the list of all refunds of its invoice.

    One that was accepted without a reference has the state of the refunds with its amount, if they
    all have the same. One that is not known to be accepted is ABSENT, also if it may be one of the
    list: the same request again gives its first answer, or does it now. After a day nobody promises
    that 2C2P remembers the first answer, so a person decides then.
    """
    for item in reply.items:
        if item.reference and item.reference == request.reference:
            return _reported(item.status, item.reference, f"refund {item.status}")
    alike = [item for item in reply.items if _may_be(item, request)]
    unknown = OutcomeUnknown(detail=f"{len(alike)} listed refunds may be this one", answered=True)
    if request.reference != _own_reference(request, "R"):
        if alike and _age_s(request, now) > REPEATABLE_FOR_S:
            return unknown
        return RefundReport(state=GatewayRefundState.ABSENT, detail="not among the refunds")
    reports = [_reported(item.status, request.reference, item.status) for item in alike]
    if len({report.state for report in reports}) == 1:
        return reports[0]
    return unknown


def _age_s(request: GatewayRefundRequest, now: float) -> float:
    """Return how old a refund is; 0 if its id does not contain its time."""
    timed = request.refund_id.version in _TIMED_VERSIONS
    return now - ids.unix_ms_of_timed(request.refund_id) / 1000 if timed else 0


def _may_be(item: _Item, request: GatewayRefundRequest) -> bool:
    try:
        return parse_order_amount(item.amount, request.capture.currency) == request.amount_minor
    except ValueError:
        return True


def _reply(content: bytes) -> _Reply:
    """Parse an answer; ValueError for what is none.

    Without a document type there are no entities, the only risk in XML of this size; and text, not
    bytes, is parsed, so that no declared encoding can hide one.
    """
    text = content.decode()
    if len(content) > XML_BYTES_MAX or "<!" in text:
        raise ValueError("the XML is too large or has a document type")
    try:
        root = ET.fromstring(text)  # noqa: S314 - see above
    except ET.ParseError:
        raise ValueError("this is no XML") from None
    code = root.findtext("respCode")
    if root.tag != "PaymentProcessResponse" or not code:
        raise ValueError("this is no answer")
    return _Reply(
        code=code,
        description=root.findtext("respDesc") or "",
        process=root.findtext("processType") or "",
        invoice=root.findtext("invoiceNo") or "",
        status=root.findtext("status") or "",
        reference=root.findtext("refundReferenceNo") or None,
        items=tuple(_item(listed) for listed in root.iterfind("refundList/refund")),
    )


def _item(listed: ET.Element) -> _Item:
    return _Item(
        amount=listed.get("amount", ""),
        status=listed.get("status", ""),
        reference=listed.get("referenceNo", ""),
    )
