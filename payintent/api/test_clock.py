"""The routes of a test merchant's clock; they need a test key."""

from dataclasses import asdict, dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.api.etag import json_response
from payintent.api.merchant_access import MerchantApi
from payintent.api.request_body import read_json
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.storage import test_clock
from payintent.storage.api_keys import AuthenticatedMerchant
from payintent.storage.database import Database

ADVANCE_MAX_S = 31 * 24 * 3600


class AdvanceClockBody(msgspec.Struct):
    seconds: int


_ADVANCE = msgspec.json.Decoder(AdvanceClockBody)


@dataclass(frozen=True, slots=True)
class TestClockRoutes:
    api: MerchantApi
    database: Database
    body_bytes_max: int

    def routes(self) -> list[Route]:
        return [
            self.api.route("GET", "/v1/test/clock", self.get_clock),
            self.api.route("POST", "/v1/test/clock/advance", self.advance_clock),
        ]

    async def get_clock(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        del request
        require_test_key(merchant)
        advanced_s = await test_clock.get(self.database, merchant.merchant_id)
        return json_response({"advanced_seconds": advanced_s})

    async def advance_clock(self, request: Request, merchant: AuthenticatedMerchant) -> Response:
        """`POST /test/clock/advance`: all deadlines of the test merchant come closer."""
        require_test_key(merchant)
        body = await read_json(request, _ADVANCE, self.body_bytes_max)
        if not 1 <= body.seconds <= ADVANCE_MAX_S:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"seconds must be from 1 to {ADVANCE_MAX_S}, which is 31 days",
            )
        async with self.database.transaction() as tx:
            advanced_s, moved = await test_clock.advance(tx, merchant.merchant_id, body.seconds)
        return json_response({"advanced_seconds": advanced_s, "moved": asdict(moved)})


def require_test_key(merchant: AuthenticatedMerchant) -> None:
    """Raise `FORBIDDEN` if the key is a live key."""
    if merchant.livemode:
        raise RefusedError(ErrorCode.FORBIDDEN, "only a test key, sk_test_…, may do this")
