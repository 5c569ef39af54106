"""The ECPay adapter, connected to an independently written counterpart."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

import aiohttp
import pytest

from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.http_client import GatewayHttpClient, HttpResponse
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    FailureReason,
    GatewayAccount,
    GatewayRefundRequest,
    GatewaySessionRequest,
    OutcomeUnknown,
    RefundReport,
    SessionCreated,
)
from payintent_sandbox.emulators.ecpay.model import Account as Merchant
from tests.conformance.faults import FaultProxy, faulty
from tests.conformance.harness import Harness, RefundOutcome, hurried, patient
from tests.conformance.receiver import receiving
from tests.conformance.traits import TRAITS
from tests.sandbox.ecpay.emulator_setup import (
    ACCOUNT,
    APPROVED,
    DECLINED,
    OTHER,
    UNREFUNDABLE,
    Buyer,
    mac,
    running_ecpay,
    signed,
)

DOLLAR = 100  # in our minor units
CARDS = {RefundOutcome.DONE: APPROVED, RefundOutcome.DECLINED: UNREFUNDABLE}
DECLINES = ("10100058", "10100248", "10100251", "10100252")
DECLINES_OF_THE_CARD = ("10100254", "10100255", "10100256", "10800001")
NO_DECLINES = ("2", "10100073", "10200095", "10200141", "10300023", "10300028", "10300066")

_refunding: ContextVar[bool] = ContextVar("_refunding", default=False)


class RefundFaultClient(GatewayHttpClient):
    """Applies faults only to the refund request, and not to the lookups before it.

    The adapter's own tests show that a failed lookup does not send a refund.
    """

    def __init__(
        self, hit: GatewayHttpClient, past: GatewayHttpClient, faults: FaultProxy, url: str
    ) -> None:
        self._hit, self._past, self._faults, self._url = hit, past, faults, url

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpResponse | OutcomeUnknown:
        is_refund = b"Action=R" in (body or b"") or b"Action=N" in (body or b"")
        if not _refunding.get() or is_refund:
            return await self._hit.request(method, url, headers=headers, body=body)
        past = url.replace(self._faults.url, self._url)
        return await self._past.request(method, past, headers=headers, body=body)


class RefundFaultGateway(EcpayGateway):
    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        token = _refunding.set(True)
        try:
            return await super().refund(account, request)
        finally:
            _refunding.reset(token)


@dataclass(kw_only=True)
class EcpayHarness(Harness):
    buyer: Buyer
    card: str = APPROVED

    async def visit(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self.buyer.bring(created.next_action["redirect"]["fields"])

    async def pay(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self.buyer.pay(created.reference, self.card)

    async def decline(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        await self.buyer.pay(created.reference, DECLINED)

    async def refund_in_dashboard(self, capture: Capture, amount_minor: int) -> None:
        """Refund with the API that our adapter uses, as ECPay's pages do."""
        await self.buyer.call(f"/_ecpay/trades/{capture.reference}/close", {})
        trade = await self.buyer.trade(capture.reference)
        order = {
            "MerchantID": ACCOUNT.merchant_id,
            "MerchantTradeNo": trade["merchant_trade_no"],
            "TradeNo": capture.reference,
            "Action": "R",
            "TotalAmount": str(amount_minor // DOLLAR),
        }
        answer = await self.buyer.call("/CreditDetail/DoAction", signed(order))
        assert dict(parse_qsl(answer))["RtnCode"] == "1", answer

    @asynccontextmanager
    async def undecided(
        self, created: SessionCreated, request: GatewaySessionRequest
    ) -> AsyncGenerator[None]:
        assert self.faults is not None
        with self.faults.rewriting(_with_a_new_status):
            yield

    async def set_refunds(self, outcome: RefundOutcome) -> None:
        self.card = CARDS[outcome]

    async def settle_refund(self, request: GatewayRefundRequest, outcome: RefundOutcome) -> None:
        raise NotImplementedError  # refunds are never pending

    async def get_refunded_minor(self, capture: Capture) -> int:
        return DOLLAR * (await self.buyer.trade(capture.reference))["given_back"]

    def payload(self, callback: CallbackRequest) -> bytes:
        pairs = parse_qsl(callback.body.decode(), keep_blank_values=True)
        return urlencode([pair for pair in pairs if pair[0] != "CheckMacValue"]).encode()

    def signed(self, payload: bytes, account: GatewayAccount) -> CallbackRequest:
        pairs = parse_qsl(payload.decode(errors="replace"), keep_blank_values=True)
        credentials = account.credentials
        merchant = Merchant(
            credentials["merchant_id"], credentials["hash_key"], credentials["hash_iv"], ""
        )
        value = mac(dict(pairs), merchant)
        return _posted(urlencode([*pairs, ("CheckMacValue", value)], errors="replace").encode())

    def restate(self, payload: bytes, *, amount: str = "", currency: str = "") -> bytes | None:
        fields = dict(parse_qsl(payload.decode(), keep_blank_values=True))
        return urlencode(fields | {"TradeAmt": amount}).encode() if amount else None

    def forgeries(self, callback: CallbackRequest) -> Mapping[str, CallbackRequest]:
        fields = dict(parse_qsl(callback.body.decode(), keep_blank_values=True))
        value = fields["CheckMacValue"]
        changed = {
            "no value": {"CheckMacValue": None},
            "an empty value": {"CheckMacValue": ""},
            "zeros": {"CheckMacValue": "0" * 64},
            "in lower case": {"CheckMacValue": value.lower()},
            "half of the value": {"CheckMacValue": value[:32]},
            "another amount": {"TradeAmt": "1"},
            "another trade": {"TradeNo": "1"},
            "another session": {"CustomField1": "0" * 32},
            "the same session in capitals": {"CustomField1": fields["CustomField1"].upper()},
            "an additional field": {"Extra": "1"},
            "a missing field": {"SimulatePaid": None},
            # The hash is computed from the same text: letters are lowercased, and `&` joins fields.
            "cut elsewhere": {"RtnMsg": f"{fields['RtnMsg']}&SimulatePaid=0", "SimulatePaid": None},
        }
        forged = {name: _posted(_with(fields, changes)) for name, changes in changed.items()}
        return forged | {"twice": _posted(callback.body + b"&RtnCode=1")}


def _with_a_new_status(body: bytes) -> bytes:
    fields = dict(parse_qsl(body.decode(), keep_blank_values=True))
    del fields["CheckMacValue"]
    return urlencode(signed(fields | {"TradeStatus": "7"})).encode()


@asynccontextmanager
async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]:
    with running_ecpay() as url:
        async with faulty(url) as faults, receiving() as receiver, aiohttp.ClientSession() as http:
            patient_client, hurried_client = patient(), hurried()
            harness = EcpayHarness(
                gateway=RefundFaultGateway(
                    RefundFaultClient(patient_client, patient_client, faults, url)
                ),
                hurried=RefundFaultGateway(
                    RefundFaultClient(hurried_client, patient_client, faults, url)
                ),
                account=_account(faults, url, ACCOUNT),
                other_account=_account(faults, url, OTHER),
                faults=faults,
                receiver=receiver,
                currency="TWD",
                amount_minor=1590 * DOLLAR,
                country="TW",
                failures={
                    **dict.fromkeys(DECLINES, FailureReason.DECLINED),
                    **dict.fromkeys(DECLINES_OF_THE_CARD, FailureReason.DECLINED),
                    **dict.fromkeys(NO_DECLINES, FailureReason.UNKNOWN),
                },
                unknown_reference="nobody",
                public=frozenset({"page_url", "merchant_id", "auto_close"}),
                **vars(TRAITS["ecpay"]),
                buyer=Buyer(http, url),
            )
            receiver.serve(harness.gateway, harness.account)
            yield harness
            await patient_client.close()
            await hurried_client.close()


def _account(faults: FaultProxy, url: str, merchant: Merchant) -> GatewayAccount:
    credentials = {
        "merchant_id": merchant.merchant_id,
        "hash_key": merchant.hash_key,
        "hash_iv": merchant.hash_iv,
        "credit_check_code": merchant.credit_check_code,
        "auto_close": "off",  # even if the tests run at a quarter past eight in Taipei
        "page_url": url,
    }
    return GatewayAccount(id=1, provider="ecpay", base_url=faults.url, credentials=credentials)


def _with(fields: Mapping[str, str], changes: Mapping[str, str | None]) -> bytes:
    changed = {**fields, **changes}
    return urlencode({name: value for name, value in changed.items() if value is not None}).encode()


def _posted(body: bytes) -> CallbackRequest:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    return CallbackRequest(method="POST", headers=headers, query={}, body=body)
