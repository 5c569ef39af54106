"""Routes for the test clock and the simulated buyer, which require a test key."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core import ids
from payintent.core.errors import BadRequestError, ErrorCode, RefusedError
from payintent.core.money import TEST_TOKEN_DECIMALS, is_plain_decimal
from payintent.db.database import Database
from payintent.gateways.port import DisputeState
from payintent.http.bodies import read_idempotency_key, read_json
from payintent.http.responses import REPLAYED_HEADERS, json_response
from payintent.merchants.access import MerchantApi
from payintent.merchants.access_store import AuthenticatedMerchant
from payintent.payments.lookup import PaymentLookup
from payintent.payments.serialization import make_merchant_payment_fields
from payintent.payments.store import PaymentSnapshot
from payintent.runtime.settings import Settings
from payintent.test_mode import clock_store
from payintent.test_mode.buyer_simulator import (
    BuyerSimulator,
    SessionAction,
    TestRequest,
    decide_dispute,
    enter_card,
    enter_declined_card,
)
from payintent.test_mode.deposits import TestTransfer
from payintent.test_mode.model import APPROVED_CARD, DECLINED_CARDS, TEST_CARDS

ADVANCE_MAX_S = 31 * 24 * 3600
_TRANSFER_MAX = 10**6


class AdvanceBody(msgspec.Struct):
    seconds: int


_ADVANCE_DECODER = msgspec.json.Decoder(AdvanceBody)


class PayBody(msgspec.Struct):
    card: str = APPROVED_CARD


class DeclineBody(msgspec.Struct):
    code: str = "card_declined"


class DisputeBody(msgspec.Struct):
    state: Literal["open", "won", "lost"] = "open"


class TransferBody(msgspec.Struct):
    amount: str | None = None  # the remaining amount
    token: Literal["USDT", "USDC"] | None = None  # the session's token


_TRANSFER_DECODER = msgspec.json.Decoder(TransferBody)
_PAY_DECODER = msgspec.json.Decoder(PayBody)
_DECLINE_DECODER = msgspec.json.Decoder(DeclineBody)
_DISPUTE_DECODER = msgspec.json.Decoder(DisputeBody)
_Simulate = Callable[[PaymentSnapshot, TestRequest], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class TestModeRoutes:
    api: MerchantApi
    database: Database
    payment_lookup: PaymentLookup
    simulator: BuyerSimulator
    settings: Settings

    def routes(self) -> list[Route]:
        payment = "/v1/test/payments/{payment_id}"
        return [
            self.api.route("GET", "/v1/test/clock", self.get_clock),
            self.api.route("POST", "/v1/test/clock/advance", self.advance_clock),
            self.api.route("POST", f"{payment}/pay", self.pay_payment),
            self.api.route("POST", f"{payment}/decline", self.decline_payment),
            self.api.route("POST", f"{payment}/dispute", self.dispute_payment),
            self.api.route("POST", f"{payment}/transfer", self.transfer_to_payment),
        ]

    async def get_clock(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        del request
        _require_test_key(merchant)
        advanced_s = await clock_store.get(self.database, merchant.merchant_id)
        return json_response({"advanced_seconds": advanced_s})

    async def advance_clock(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /test/clock/advance`: bring all deadlines of the test merchant forward."""
        _require_test_key(merchant)
        body = await read_json(request, _ADVANCE_DECODER, self.settings.body_bytes_max)
        if not 1 <= body.seconds <= ADVANCE_MAX_S:
            raise BadRequestError(f"seconds must be from 1 to {ADVANCE_MAX_S} (31 days)")
        async with self.database.transaction() as tx:
            advanced_s, advanced_rows = await clock_store.advance(
                tx, merchant.merchant_id, body.seconds
            )
        return json_response({"advanced_seconds": advanced_s, "moved": asdict(advanced_rows)})

    async def pay_payment(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /test/payments/{id}/pay`: pay with a test card and pass 3-D Secure."""
        _require_test_key(merchant)
        body = await read_json(request, _PAY_DECODER, self.settings.body_bytes_max, PayBody())
        number = body.card.replace(" ", "")
        if number not in TEST_CARDS:
            raise BadRequestError("card must be the number of a test card")
        test_request = _make_test_request(request, "test_pay", number, enter_card(number))
        return await self._simulate(request, merchant, test_request, self.simulator.pay)

    async def decline_payment(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /test/payments/{id}/decline`: pay with a card that is declined with `code`."""
        _require_test_key(merchant)
        body = await read_json(
            request, _DECLINE_DECODER, self.settings.body_bytes_max, DeclineBody()
        )
        if body.code not in DECLINED_CARDS:
            raise BadRequestError(f"code must be one of {', '.join(sorted(DECLINED_CARDS))}")
        action = enter_declined_card(body.code)
        test_request = _make_test_request(request, "test_decline", body.code, action)
        return await self._simulate(request, merchant, test_request, self.simulator.pay)

    async def dispute_payment(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /test/payments/{id}/dispute`: open a dispute, or decide it."""
        _require_test_key(merchant)
        body = await read_json(
            request, _DISPUTE_DECODER, self.settings.body_bytes_max, DisputeBody()
        )
        action = decide_dispute(DisputeState(body.state))
        test_request = _make_test_request(request, "test_dispute", body.state, action)
        return await self._simulate(request, merchant, test_request, self.simulator.dispute)

    async def transfer_to_payment(
        self, request: Request, merchant: AuthenticatedMerchant
    ) -> Response:
        """`POST /test/payments/{id}/transfer`: send tokens to the payment's test address."""
        _require_test_key(merchant)
        body = await read_json(
            request, _TRANSFER_DECODER, self.settings.body_bytes_max, TransferBody()
        )
        transfer = TestTransfer(body.token, _parse_transfer_amount(body.amount))
        value = f"{body.token or ''}:{body.amount or ''}"
        test_request = _make_test_request(request, "test_transfer", value, transfer)
        return await self._simulate(request, merchant, test_request, self.simulator.transfer)

    async def _simulate(
        self,
        request: Request,
        merchant: AuthenticatedMerchant,
        test_request: TestRequest,
        simulate: _Simulate,
    ) -> Response:
        payment_id = ids.parse_id(ids.PAYMENT, request.path_params["payment_id"])
        snapshot = await self.payment_lookup.get_merchant_payment(merchant.merchant_id, payment_id)
        is_new = await simulate(snapshot, test_request)
        updated_snapshot = await self.payment_lookup.get_merchant_payment(
            merchant.merchant_id, payment_id
        )
        fields = make_merchant_payment_fields(updated_snapshot, self.settings.checkout_base)
        return json_response(fields, headers=None if is_new else REPLAYED_HEADERS)


def _require_test_key(merchant: AuthenticatedMerchant) -> None:
    """Raise `FORBIDDEN` for a live key."""
    if merchant.livemode:
        raise RefusedError(ErrorCode.FORBIDDEN, "this route requires a test key (sk_test_…)")


def _parse_transfer_amount(text: str | None) -> int | None:
    """Return an amount in the smallest unit of a test token. Raises `BAD_REQUEST`."""
    if text is None:
        return None
    amount = Decimal(text) if is_plain_decimal(text) else Decimal(0)
    decimals = len(text.partition(".")[2])
    if decimals > TEST_TOKEN_DECIMALS or not 0 < amount <= _TRANSFER_MAX:
        raise BadRequestError(
            "amount must be a positive number of tokens, at most 1000000, with up to 6 decimals"
        )
    return int(amount.scaleb(TEST_TOKEN_DECIMALS))


def _make_test_request(
    request: Request, operation: str, value: str, action: SessionAction | TestTransfer
) -> TestRequest:
    return TestRequest(
        operation=operation,
        fields=(request.path_params["payment_id"], value),
        key=read_idempotency_key(request.headers),
        action=action,
    )
