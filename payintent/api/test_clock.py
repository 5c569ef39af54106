"""The clock of a test merchant: read, and moved on, by its test key alone."""

from dataclasses import asdict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import AppContext
from payintent.api.etag import json_response
from payintent.api.merchant_access import merchant_route
from payintent.api.request_body import read_json
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.storage import test_clock
from payintent.storage.api_keys import AuthenticatedMerchant

ADVANCE_MAX_S = 31 * 24 * 3600


class AdvanceClockBody(msgspec.Struct):
    seconds: int


_ADVANCE = msgspec.json.Decoder(AdvanceClockBody)


@merchant_route
async def get_test_clock(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    del request
    require_test_key(merchant)
    advanced_s = await test_clock.get(app.service.database, merchant.merchant_id)
    return json_response({"advanced_seconds": advanced_s})


@merchant_route
async def advance_test_clock(
    request: Request, app: AppContext, merchant: AuthenticatedMerchant
) -> Response:
    """`POST /test/clock/advance`: whatever the test side waits for comes nearer, at once."""
    require_test_key(merchant)
    service = app.service
    body = await read_json(request, _ADVANCE, service.settings.body_bytes_max)
    if not 1 <= body.seconds <= ADVANCE_MAX_S:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"seconds must be from 1 to {ADVANCE_MAX_S}, which is 31 days"
        )
    async with service.database.transaction() as tx:
        advanced_s, moved = await test_clock.advance(tx, merchant.merchant_id, body.seconds)
    return json_response({"advanced_seconds": advanced_s, "moved": asdict(moved)})


def require_test_key(merchant: AuthenticatedMerchant) -> None:
    """Refuse (`FORBIDDEN`) a live key."""
    if merchant.livemode:
        raise RefusedError(ErrorCode.FORBIDDEN, "only a test key, sk_test_…, may do this")
