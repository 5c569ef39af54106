"""The built-in gateway for test mode, which does not move money.

It has its own session and refund tables and does not use the network. Its callbacks are signed and
verified like any other gateway's.
"""

import hashlib
import hmac
import re
from dataclasses import replace

import msgspec

from payintent.core import ids
from payintent.core.money import FIAT
from payintent.db.database import Database
from payintent.gateways.http_client import decode_json
from payintent.gateways.port import (
    AccountCheck,
    CallbackRequest,
    CallbackResponse,
    CreationResult,
    FailureReason,
    GatewayAccount,
    GatewayCapabilities,
    GatewayRefundRequest,
    GatewayRefundState,
    GatewaySessionRef,
    GatewaySessionRequest,
    GatewaySessionState,
    InvalidCallbackError,
    OutcomeUnknown,
    RefundReport,
    RefundResult,
    SessionCreated,
    SessionRejected,
    SessionResult,
    VerifiedCallback,
)
from payintent.merchants.provisioning import SIGNING_SECRET, TEST_PROVIDER
from payintent.test_mode import store as test_store
from payintent.test_mode.model import (
    NO_RESPONSE_MINOR,
    REJECTED_MINOR,
    TestCallback,
    TestGatewayRefund,
    TestSession,
    classify_decline,
    make_card_page_url,
    report_session,
)

_SIGNATURE = "test-signature"
_TEXT = re.compile(r"[!-~]{1,200}", re.ASCII)  # the database cannot store NUL
_AMOUNT_MAX = 10**15
_REFUND_DETAILS = {
    GatewayRefundState.DONE: "",
    GatewayRefundState.PENDING: "succeeds later",
    GatewayRefundState.DECLINED: "the card declines refunds",
}


class TestGateway:
    provider = TEST_PROVIDER
    capabilities = GatewayCapabilities(
        credentials=frozenset({SIGNING_SECRET}),
        decimals=FIAT,
        remote=False,
        remote_refunds=False,
        test_only=True,
    )

    def __init__(self, database: Database, page_base: str) -> None:
        self._database = database
        self._page_base = page_base
        self.capabilities = replace(TestGateway.capabilities, shared_page_url=page_base)

    async def create_session(
        self, account: GatewayAccount, request: GatewaySessionRequest
    ) -> CreationResult:
        if request.amount_minor == REJECTED_MINOR:
            return SessionRejected(detail="the test gateway rejects this amount")
        session = await test_store.open_session(
            self._database,
            TestSession(
                session_id=request.session_id,
                account_id=account.id,
                amount_minor=request.amount_minor,
                currency=request.currency,
                return_url=request.return_url,
                expires_at=request.expires_at,
            ),
        )
        if session.amount_minor == NO_RESPONSE_MINOR:
            detail = "the test gateway does not respond for this amount"
            return OutcomeUnknown(detail=detail, is_throttled=True)
        return SessionCreated.redirect(
            ids.format_id(ids.SESSION, session.session_id),
            make_card_page_url(self._page_base, session.session_id),
            request.expires_at,
        )

    async def close_session(
        self, account: GatewayAccount, session: GatewaySessionRef
    ) -> SessionResult:
        closed_session = await test_store.close_session(
            self._database, account.id, session.session_id
        )
        return report_session(closed_session)

    async def inquire(self, account: GatewayAccount, session: GatewaySessionRef) -> SessionResult:
        test_session = await test_store.find_session(self._database, session.session_id)
        is_own = test_session is not None and test_session.account_id == account.id
        return report_session(test_session if is_own else None)

    def parse_callback(self, account: GatewayAccount, request: CallbackRequest) -> VerifiedCallback:
        signature = request.headers.get(_SIGNATURE, "").encode(errors="replace")
        if not hmac.compare_digest(_sign(account, request.body), signature):
            raise InvalidCallbackError("the signature is not from this account")
        message = decode_json(request.body, TestCallback)
        if message is None:
            raise InvalidCallbackError("the signed body is malformed")
        if not _is_consistent(message):
            raise InvalidCallbackError("the signed body contradicts itself")
        if message.dispute is not None:
            return VerifiedCallback(id=message.id, dispute=message.dispute)
        session_id = ids.parse_id(ids.SESSION, message.session_id)
        return VerifiedCallback(id=message.id, session_id=session_id, report=message.report)

    def acknowledge(self, callback: VerifiedCallback) -> CallbackResponse:
        del callback
        return CallbackResponse()

    async def refund(self, account: GatewayAccount, request: GatewayRefundRequest) -> RefundResult:
        if request.session is None:
            return RefundReport(state=GatewayRefundState.DECLINED, detail="the session is unknown")
        refund = await test_store.add_refund(
            self._database,
            account.id,
            request.session.session_id,
            request.refund_id,
            request.amount_minor,
        )
        if refund is None:
            detail = "the refund exceeds the capture's remaining amount"
            return RefundReport(state=GatewayRefundState.DECLINED, detail=detail)
        return _report_refund(refund)

    async def inquire_refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundResult:
        refund = await test_store.find_refund(self._database, account.id, request.refund_id)
        if refund is None:
            return RefundReport(state=GatewayRefundState.ABSENT)
        return _report_refund(refund)

    def classify_failure(self, code: str) -> FailureReason:
        return classify_decline(code)

    async def check_account(self, account: GatewayAccount) -> AccountCheck:
        del account
        return AccountCheck(problem=None, detail="the test gateway is part of the service")


def write_callback(
    account: GatewayAccount, test_callback: TestCallback, spaces: int = 0
) -> CallbackRequest:
    """Return a signed callback. Trailing `spaces` make repeated callbacks differ."""
    body = msgspec.json.encode(test_callback) + b" " * spaces
    return CallbackRequest(
        method="POST", headers={_SIGNATURE: _sign(account, body).decode()}, query={}, body=body
    )


def _is_consistent(message: TestCallback) -> bool:
    """Return whether a message can be stored and is consistent.

    A message must contain a capture if and only if it reports a captured session.
    """
    report, dispute = message.report, message.dispute
    texts, amounts = [message.id], list[int]()
    if report is not None:
        if (report.capture is not None) != (report.state is GatewaySessionState.CAPTURED):
            return False
        if report.capture is not None:
            texts += [
                report.capture.reference,
                report.capture.currency,
                report.capture.verbatim or "-",
            ]
            amounts.append(report.capture.amount_minor)
    if dispute is not None:
        texts += [dispute.reference, dispute.capture, dispute.currency, dispute.reason or "-"]
        amounts.append(dispute.amount_minor)
    return all(map(_TEXT.fullmatch, texts)) and all(
        0 <= amount <= _AMOUNT_MAX for amount in amounts
    )


def _sign(account: GatewayAccount, body: bytes) -> bytes:
    secret = account.credentials.get(SIGNING_SECRET, "").encode()
    if not secret:  # anyone could sign with an empty secret
        raise InvalidCallbackError("the account has no signing secret")
    return hmac.new(secret, body, hashlib.sha256).hexdigest().encode()


def _report_refund(refund: TestGatewayRefund) -> RefundReport:
    return RefundReport(
        state=refund.state,
        reference=f"test_{refund.refund_id.hex}",
        detail=_REFUND_DETAILS.get(refund.state, ""),
    )
