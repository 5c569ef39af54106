"""The check of an account at 2C2P: it inquires about an invoice that does not exist."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import msgspec
from msgspec import Struct

from payintent.domain.gateway import (
    AccountCheck,
    AccountProblem,
    Capture,
    GatewayAccount,
    GatewayRefundRequest,
    RefundReport,
)
from payintent.gateways.account_check import (
    common_problem,
    not_understood,
    plain_text,
    refused,
    works,
)
from payintent.gateways.http_client import GatewayHttpClient, HttpAnswer, decode_json
from payintent.gateways.twoc2p import response_codes as codes
from payintent.gateways.twoc2p.jwt import InvalidTokenError, sign_jwt, verify_jwt
from payintent.gateways.twoc2p.messages import TwoC2pEnvelope
from payintent.gateways.twoc2p.refunds import TwoC2pRefundApi

#: No session has this number: those are drawn at random.
CHECK_INVOICE = "0AccountCheck0000000"
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


class _Said(Struct, frozen=True):
    code: str = msgspec.field(name="respCode")
    description: str | None = msgspec.field(name="respDesc", default=None)

    @property
    def text(self) -> str:
        return f"{plain_text(self.code)} {plain_text(self.description or '')}".rstrip()


@dataclass(frozen=True, slots=True)
class TwoC2pAccountCheck:
    """Both of 2C2P's interfaces: payments by `secret_key`, refunds by the two PEM keys."""

    http: GatewayHttpClient
    refunds: TwoC2pRefundApi
    now: Callable[[], float]

    async def run(self, account: GatewayAccount) -> AccountCheck:
        secret = account.credentials.get("secret_key", "")
        merchant_id = account.credentials.get("merchant_id", "")
        query = {"merchantID": merchant_id, "invoiceNo": CHECK_INVOICE, "locale": "en"}
        body = msgspec.json.encode({"payload": sign_jwt(msgspec.json.encode(query), secret)})
        url = f"{account.base_url.rstrip('/')}/payment/4.3/paymentInquiry"
        answer = await self.http.request("POST", url, headers=_HEADERS, body=body)
        if problem := common_problem(account, answer, self.now()):
            return problem
        assert isinstance(answer, HttpAnswer)  # noqa: S101 - anything else is a problem
        return _payment_problem(account, answer, secret) or await self._refunds(account)

    async def _refunds(self, account: GatewayAccount) -> AccountCheck:
        report = await self.refunds.inquire(account, _unknown_refund())
        if isinstance(report, RefundReport):
            return works("2C2P accepts the credentials for payments and those for refunds")
        if report.throttled:
            return AccountCheck(
                problem=AccountProblem.THROTTLED, detail=f"refunds: {report.detail}"
            )
        if report.answered:  # such as the maintenance API of another country
            return refused(f"2C2P refuses the inquiry about refunds: {plain_text(report.detail)}")
        if report.problem is not AccountProblem.CREDENTIALS:
            return AccountCheck(problem=report.problem, detail=f"refunds: {report.detail}")
        return refused(
            "2C2P accepts merchant_id and secret_key; refunds would fail by "
            f"merchant_private_key or gateway_public_key: {plain_text(report.detail)}"
        )


def _payment_problem(
    account: GatewayAccount, answer: HttpAnswer, secret: str
) -> AccountCheck | None:
    try:
        payload = msgspec.json.decode(answer.body, type=TwoC2pEnvelope).payload
    except (msgspec.DecodeError, UnicodeDecodeError):
        said = _said(answer.body)  # a refusal is not signed
        if said is None:
            return not_understood(account, answer)
        return refused(f"2C2P refuses merchant_id or secret_key: {said.text}")
    try:
        said = _said(verify_jwt(payload, secret))
    except InvalidTokenError:
        return refused("2C2P signs with another secret_key than this account's")
    if said is None:
        return not_understood(account, answer)
    if said.code not in codes.NOT_FOUND:
        return refused(f"2C2P refuses the inquiry: {said.text}")
    return None


def _said(content: bytes) -> _Said | None:
    return decode_json(content, _Said)


def _unknown_refund() -> GatewayRefundRequest:
    return GatewayRefundRequest(
        refund_id=UUID(int=0),
        reference=None,
        session=None,
        capture=Capture(reference=f"{CHECK_INVOICE}.0", amount_minor=100, currency="THB"),
        amount_minor=100,
        reason="",
        destination=None,
        callback_url="",
    )
