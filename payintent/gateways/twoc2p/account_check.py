"""Check a 2C2P account by querying an invoice that does not exist."""

from uuid import UUID

import msgspec
from msgspec import Struct

from payintent.gateways.account_check import (
    account_works,
    check_response,
    credentials_rejected,
    plain_text,
    unexpected_response,
)
from payintent.gateways.http_client import GatewayHttpClient, HttpAnswer, decode_json
from payintent.gateways.port import (
    AccountCheck,
    AccountProblem,
    Capture,
    GatewayAccount,
    GatewayRefundRequest,
    RefundReport,
    RefundResult,
)
from payintent.gateways.twoc2p import response_codes as codes
from payintent.gateways.twoc2p.jwt import InvalidTokenError, open_envelope, post_jwt
from payintent.gateways.twoc2p.messages import inquiry
from payintent.gateways.twoc2p.refunds import TwoC2pRefundApi

CHECK_INVOICE = "0AccountCheck0000000"  # session numbers are random, so none equals this


class _Response(Struct, frozen=True):
    code: str = msgspec.field(name="respCode")
    description: str | None = msgspec.field(name="respDesc", default=None)

    @property
    def text(self) -> str:
        return f"{plain_text(self.code)} {plain_text(self.description or '')}".rstrip()


async def check_twoc2p_account(
    http: GatewayHttpClient, refunds: TwoC2pRefundApi, account: GatewayAccount, now: float
) -> AccountCheck:
    """Check both APIs: payments by `secret_key`, refunds by the two PEM keys."""
    query = inquiry(account, CHECK_INVOICE)
    answer = check_response(account, await post_jwt(http, account, "paymentInquiry", query), now)
    if isinstance(answer, AccountCheck):
        return answer
    if problem := _payment_problem(account, answer):
        return problem
    return _refund_check(await refunds.inquire(account, _unknown_refund()))


def _refund_check(report: RefundResult) -> AccountCheck:
    if isinstance(report, RefundReport):
        return account_works("2C2P accepts the credentials for payments and refunds")
    if report.is_throttled:
        return AccountCheck(problem=AccountProblem.THROTTLED, detail=f"refunds: {report.detail}")
    if report.has_responded:  # for example by the maintenance API of a different country
        return credentials_rejected(f"2C2P refuses the refund inquiry: {plain_text(report.detail)}")
    if report.problem is not AccountProblem.CREDENTIALS:
        return AccountCheck(problem=report.problem, detail=f"refunds: {report.detail}")
    return credentials_rejected(
        "2C2P accepts merchant_id and secret_key; refunds would fail by "
        f"merchant_private_key or gateway_public_key: {plain_text(report.detail)}"
    )


def _payment_problem(account: GatewayAccount, answer: HttpAnswer) -> AccountCheck | None:
    try:
        content = open_envelope(answer.body, account.credentials.get("secret_key", ""))
    except InvalidTokenError:
        return credentials_rejected("2C2P signs with another secret_key than this account's")
    response = decode_json(answer.body if content is None else content, _Response)
    if response is None:
        return unexpected_response(account, answer)
    if content is None:  # refusals are not signed
        return credentials_rejected(f"2C2P refuses merchant_id or secret_key: {response.text}")
    if response.code not in codes.NOT_FOUND:
        return credentials_rejected(f"2C2P refuses the inquiry: {response.text}")
    return None


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
