"""The routes that pay, decline and dispute test payments; they need a test key."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.api.etag import REPLAYED, json_response
from payintent.api.merchant_access import MerchantApi
from payintent.api.request_body import read_idempotency_key, read_json
from payintent.api.test_clock import require_test_key
from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import DisputeState
from payintent.domain.test_cards import APPROVED_CARD, DECLINED_CARDS, TEST_CARDS
from payintent.payments.buyer_simulator import (
    BuyerSimulator,
    Step,
    TestRequest,
    decide_dispute,
    enter_card,
    enter_declined_card,
)
from payintent.payments.lookup import PaymentLookup
from payintent.payments.serialization import merchant_payment_fields
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.payments import PaymentSnapshot


class PayTestPaymentBody(msgspec.Struct):
    card: str = APPROVED_CARD


class DeclineTestPaymentBody(msgspec.Struct):
    code: str = "card_declined"


class DisputeTestPaymentBody(msgspec.Struct):
    state: Literal["open", "won", "lost"] = "open"


_PAY = msgspec.json.Decoder(PayTestPaymentBody)
_DECLINE = msgspec.json.Decoder(DeclineTestPaymentBody)
_DISPUTE = msgspec.json.Decoder(DisputeTestPaymentBody)
_Simulate = Callable[[PaymentSnapshot, TestRequest], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class TestPaymentRoutes:
    api: MerchantApi
    payments: PaymentLookup
    simulator: BuyerSimulator
    checkout_base: str
    body_bytes_max: int

    def routes(self) -> list[Route]:
        path = "/v1/test/payments/{payment_id}"
        return [
            self.api.route("POST", f"{path}/pay", self.pay_payment),
            self.api.route("POST", f"{path}/decline", self.decline_payment),
            self.api.route("POST", f"{path}/dispute", self.dispute_payment),
        ]

    async def pay_payment(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /test/payments/{id}/pay`: pay with a test card and pass 3-D Secure."""
        require_test_key(merchant)
        body = await read_json(request, _PAY, self.body_bytes_max, PayTestPaymentBody())
        number = body.card.replace(" ", "")
        if number not in TEST_CARDS:
            raise RefusedError(ErrorCode.BAD_REQUEST, "card must be the number of a test card")
        test_request = _test_request(request, "test_pay", number, enter_card(number))
        return await self._simulate(request, merchant, test_request, self.simulator.pay)

    async def decline_payment(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /test/payments/{id}/decline`: pay with a card that is declined with a code."""
        require_test_key(merchant)
        body = await read_json(request, _DECLINE, self.body_bytes_max, DeclineTestPaymentBody())
        if body.code not in DECLINED_CARDS:
            raise RefusedError(
                ErrorCode.BAD_REQUEST, f"code must be one of {', '.join(sorted(DECLINED_CARDS))}"
            )
        step = enter_declined_card(body.code)
        test_request = _test_request(request, "test_decline", body.code, step)
        return await self._simulate(request, merchant, test_request, self.simulator.pay)

    async def dispute_payment(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /test/payments/{id}/dispute`: open a dispute, or decide it."""
        require_test_key(merchant)
        body = await read_json(request, _DISPUTE, self.body_bytes_max, DisputeTestPaymentBody())
        step = decide_dispute(DisputeState(body.state))
        test_request = _test_request(request, "test_dispute", body.state, step)
        return await self._simulate(request, merchant, test_request, self.simulator.dispute)

    async def _simulate(
        self,
        request: Request,
        merchant: AuthenticatedMerchant,
        test_request: TestRequest,
        simulate: _Simulate,
    ) -> Response:
        payment_id = ids.parse_id(ids.PAYMENT, request.path_params["payment_id"])
        before = await self.payments.get_merchant_payment(merchant.merchant_id, payment_id)
        is_new = await simulate(before, test_request)
        after = await self.payments.get_merchant_payment(merchant.merchant_id, payment_id)
        fields = merchant_payment_fields(after, self.checkout_base)
        return json_response(fields, headers=None if is_new else REPLAYED)


def _test_request(request: Request, operation: str, value: str, step: Step) -> TestRequest:
    return TestRequest(
        operation=operation,
        fields=(request.path_params["payment_id"], value),
        key=read_idempotency_key(request.headers),
        step=step,
    )
