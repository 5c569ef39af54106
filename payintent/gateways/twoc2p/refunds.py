"""Refunds, voids and inquiries through 2C2P's maintenance API, as encrypted and signed XML.

A settled payment can be refunded fully or partially. An unsettled payment cannot be refunded, but
it can be voided in full until the end of the acquirer's day, which has the same effect.

If an `idempotencyID` is repeated, 2C2P returns its first response, so a refund can safely be sent
again. This is how the outcome of a refund without a response is determined, because 2C2P's list of
refunds does not contain our ids.
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
#: How long 2C2P is assumed to remember an `idempotencyID`. 2C2P does not document the period.
REPLAY_WINDOW_S = 24 * 3600

_OK = 200
_ABSENT = GatewayRefundState.ABSENT
_TIMED_UUID_VERSIONS = frozenset({7, 8})
#: Suffixes that follow our refund id in idempotency keys. If a void used the refund's key, 2C2P
#: would repeat its rejection of the refund. Inquiries have no key, because 2C2P would repeat an
#: earlier response.
_IDEMPOTENCY_SUFFIXES = {"R": "", "V": "-void"}


@dataclass(frozen=True, slots=True)
class _ListedRefund:
    amount: str
    status: str
    reference: str


@dataclass(frozen=True, slots=True)
class _Response:
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
        response = await self._request(account, request, "RS", total)
        if isinstance(response, OutcomeUnknown):
            return response
        if response.code == codes.NO_TRANSACTION:
            return RefundReport(state=GatewayRefundState.ABSENT, detail=response.detail)
        if response.code != codes.DONE:
            return inconclusive_response(response.detail)
        if response.status in codes.VOIDS and request.amount_minor == total:
            return _accepted_report(
                response.status, _substitute_reference(request, "V"), response.detail
            )
        return _identify_refund(response, request, self._now())

    async def _refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        try:
            format_action_amount(request.amount_minor, request.capture.currency)
        except ValueError as error:  # 2C2P cannot represent this amount
            return RefundReport(state=GatewayRefundState.DECLINED, detail=str(error))
        if request.was_sent_before and _age_s(request, self._now()) > REPLAY_WINDOW_S:
            first_result = await self.inquire(account, request)
            if (
                isinstance(first_result, OutcomeUnknown)
                or first_result.state is not GatewayRefundState.ABSENT
            ):
                return first_result
        response = await self._request(account, request, "R", request.amount_minor)
        is_full = request.amount_minor == request.capture.amount_minor
        if isinstance(response, _Response) and response.code in codes.UNREFUNDABLE and is_full:
            # The refund was definitely not made, so the void is not a second refund.
            response = await self._request(account, request, "V", request.amount_minor)
        if isinstance(response, OutcomeUnknown):
            return response
        if request.was_sent_before and response.code in codes.REFUSED:
            return await self._decline_repeated(account, request, response)
        return _refund_report(response, request)

    async def _decline_repeated(
        self, account: GatewayAccount, request: GatewayRefundRequest, rejection: _Response
    ) -> RefundResult:
        """Report a rejected retry as declined, unless the first request may have succeeded."""
        total = request.capture.amount_minor
        response = await self._request(account, request, "RS", total)
        if isinstance(response, OutcomeUnknown):
            return response
        is_voided = response.status in codes.VOIDS and request.amount_minor == total
        is_listed = is_voided or any(_may_match(refund, request) for refund in response.refunds)
        if response.code == codes.NO_TRANSACTION or (response.code == codes.DONE and not is_listed):
            return _refund_report(rejection, request)
        return inconclusive_response(f"the retry was rejected: {rejection.detail}")

    async def _request(
        self,
        account: GatewayAccount,
        request: GatewayRefundRequest,
        process: str,
        amount_minor: int,
    ) -> _Response | OutcomeUnknown:
        # Imported here because its libraries are large, and most processes do not make refunds.
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
        http_response = await self._http.request(
            "POST", _maintenance_url(account), headers={"Content-Type": "text/plain"}, body=body
        )
        if isinstance(http_response, OutcomeUnknown):
            return http_response
        status = http_response.status
        try:
            content = sealed.verify_and_decrypt(http_response.body.decode().strip(), keys)
            response = _parse_response(content)
        except (InvalidTokenError, ValueError):
            return replace(
                unusable_response(status, f"invalid response, status {status}"),
                problem=AccountProblem.CREDENTIALS,  # the keys probably do not match
            )
        if status != _OK or not _is_response_to(response, process, _invoice(request)):
            return inconclusive_response(f"status {status}: {response.detail}")
        return response

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


def _is_response_to(response: _Response, process: str, invoice: str) -> bool:
    """Return whether a response belongs to this request. Rejections may omit some fields."""
    if response.code in codes.REFUSED:
        return response.process in {"", process} and response.invoice in {"", invoice}
    return (response.process, response.invoice) == (process, invoice)


def _refund_report(response: _Response, request: GatewayRefundRequest) -> RefundResult:
    reference = response.reference or _substitute_reference(request, response.process)
    if response.code == codes.DONE:
        return _accepted_report(response.status, reference, response.detail)
    if response.code == codes.REFUND_PENDING:
        return RefundReport(
            state=GatewayRefundState.PENDING, reference=reference, detail=response.detail
        )
    if response.code in codes.REFUSED:
        return RefundReport(
            state=GatewayRefundState.DECLINED, reference=response.reference, detail=response.detail
        )
    return inconclusive_response(response.detail)


def _substitute_reference(request: GatewayRefundRequest, process: str) -> str:
    """Build a reference for a refund that 2C2P accepted without assigning one.

    The reference contains only the invoice number, because the capture's reference may be completed
    later.
    """
    return f"{_invoice(request)}-{process}"


def _accepted_report(status: str, reference: str | None, detail: str) -> RefundReport:
    state = codes.REFUND_STATES.get(status, GatewayRefundState.PENDING)
    return RefundReport(state=state, reference=reference, detail=detail)


def _identify_refund(
    response: _Response, request: GatewayRefundRequest, now: float
) -> RefundResult:
    """Find our refund in the list of its invoice's refunds, and report its state.

    If the refund was accepted without a reference, it has the state of the listed refunds with the
    same amount, provided that their states agree. If the refund is not known to have been accepted,
    it is reported as ABSENT even if it may be listed, because sending it again either returns the
    first response or makes the refund. After a day, 2C2P may have forgotten the first response, so
    the outcome is unknown.
    """
    for refund in response.refunds:
        if refund.reference and refund.reference == request.reference:
            return _accepted_report(refund.status, refund.reference, f"refund {refund.status}")
    candidates = [refund for refund in response.refunds if _may_match(refund, request)]
    unknown_outcome = inconclusive_response(f"listed refunds that may match: {len(candidates)}")
    if request.reference != _substitute_reference(request, "R"):
        if candidates and _age_s(request, now) > REPLAY_WINDOW_S:
            return unknown_outcome
        return RefundReport(state=GatewayRefundState.ABSENT, detail="the refund is not listed")
    reports = [
        _accepted_report(refund.status, request.reference, refund.status) for refund in candidates
    ]
    if len({report.state for report in reports}) == 1:
        return reports[0]
    return unknown_outcome


def _age_s(request: GatewayRefundRequest, now: float) -> float:
    """Return the age of a refund, or 0 if its id contains no timestamp."""
    has_timestamp = request.refund_id.version in _TIMED_UUID_VERSIONS
    return now - ids.get_unix_ms(request.refund_id) / 1000 if has_timestamp else 0


def _may_match(refund: _ListedRefund, request: GatewayRefundRequest) -> bool:
    try:
        return parse_order_amount(refund.amount, request.capture.currency) == request.amount_minor
    except ValueError:
        return True


def _parse_response(content: bytes) -> _Response:
    """Parse a response. Raises `ValueError` if it is invalid.

    XML of this size is dangerous only if it defines entities, which requires a document type. The
    response is decoded before parsing, so that an encoding declaration cannot hide a document type.
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
    return _Response(
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
