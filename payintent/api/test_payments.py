"""What happens to test payments, at the wish of a test key: paid, declined, disputed."""

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import AppContext
from payintent.api.etag import REPLAYED, json_response
from payintent.api.merchant_access import merchant_route
from payintent.api.request_body import read_idempotency_key, read_json
from payintent.api.test_clock import require_test_key
from payintent.domain import ids
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import DisputeState
from payintent.domain.test_cards import APPROVED_CARD, DECLINED_CARDS, TEST_CARDS
from payintent.payments.buyer_simulator import (
    Step,
    TestRequest,
    decide_dispute,
    enter_card,
    enter_declined_card,
)
from payintent.payments.serialization import merchant_payment_fields
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.payments import PaymentSnapshot


class PayTestPaymentBody(msgspec.Struct):
    """The body of `POST /test/payments/{id}/pay`; without it, a card that is approved."""

    card: str = APPROVED_CARD


class DeclineTestPaymentBody(msgspec.Struct):
    code: str = "card_declined"


class DisputeTestPaymentBody(msgspec.Struct):
    state: Literal["open", "won", "lost"] = "open"


_PAY = msgspec.json.Decoder(PayTestPaymentBody)
_DECLINE = msgspec.json.Decoder(DeclineTestPaymentBody)
_DISPUTE = msgspec.json.Decoder(DisputeTestPaymentBody)
_Take = Callable[[PaymentSnapshot, TestRequest], Awaitable[bool]]


@merchant_route
async def pay_test_payment(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`POST /test/payments/{id}/pay`: pays with a test card, and approves what is asked."""
    require_test_key(merchant)
    body = await read_json(request, _PAY, app.service.settings.body_bytes_max, PayTestPaymentBody())
    number = body.card.replace(" ", "")
    if number not in TEST_CARDS:
        raise RefusedError(ErrorCode.BAD_REQUEST, "card must be the number of a test card")
    wanted = _request(request, "test_pay", number, enter_card(number))
    return await _answer(request, app, merchant, wanted, app.service.buyer_simulator.pay)


@merchant_route
async def decline_test_payment(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`POST /test/payments/{id}/decline`: the buyer's card is declined, with a code."""
    require_test_key(merchant)
    body = await read_json(
        request, _DECLINE, app.service.settings.body_bytes_max, DeclineTestPaymentBody()
    )
    if body.code not in DECLINED_CARDS:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"code must be one of {', '.join(sorted(DECLINED_CARDS))}"
        )
    wanted = _request(request, "test_decline", body.code, enter_declined_card(body.code))
    return await _answer(request, app, merchant, wanted, app.service.buyer_simulator.pay)


@merchant_route
async def dispute_test_payment(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`POST /test/payments/{id}/dispute`: the buyer's bank asks the money back, or decides."""
    require_test_key(merchant)
    body = await read_json(
        request, _DISPUTE, app.service.settings.body_bytes_max, DisputeTestPaymentBody()
    )
    step = decide_dispute(DisputeState(body.state))
    wanted = _request(request, "test_dispute", body.state, step)
    return await _answer(request, app, merchant, wanted, app.service.buyer_simulator.dispute)


def _request(request: Request, operation: str, value: str, step: Step) -> TestRequest:
    return TestRequest(
        operation=operation,
        fields=(request.path_params["payment_id"], value),
        key=read_idempotency_key(request.headers),
        step=step,
    )


async def _answer(
    request: Request,
    app: AppContext,
    merchant: AuthenticatedMerchant,
    wanted: TestRequest,
    take: _Take,
) -> Response:
    lookup = app.service.payment_lookup
    payment_id = ids.parse_id(ids.PAYMENT, request.path_params["payment_id"])
    snapshot = await lookup.get_merchant_payment(merchant.merchant_id, payment_id)
    fresh = await take(snapshot, wanted)
    after = await lookup.get_merchant_payment(merchant.merchant_id, payment_id)
    fields = merchant_payment_fields(after, app.service.settings.checkout_base)
    return json_response(fields, headers=None if fresh else REPLAYED)
