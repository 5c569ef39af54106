"""The checks and fields that localstripe lacks for new payment intents."""

import json
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode

from aiohttp import web
from localstripe.resources import store

from payintent_sandbox.emulators.stripe.model import Json, RefusalError

#: Published minimum amounts in Stripe's units. For TWD, IDR and PHP, they are 0.50 USD at a fixed
#: rate, as Stripe converts the minimum for an account that is paid out in USD.
MINIMUMS = {"usd": 50, "thb": 1_000, "jpy": 50, "twd": 1_625, "idr": 825_000, "php": 2_900}
DIGITS_MAX = {"idr": 12}
_DIGITS_MAX = 8
_EXCLUDED = "excluded_payment_method_types"
_objects = cast("dict[str, Any]", store)  # localstripe's objects, by kind and id


async def check_intent(request: web.Request) -> dict[str, Any]:
    """Reject amounts as Stripe does; remove and return the fields that localstripe lacks."""
    form = parse_qsl((await request.read()).decode(), keep_blank_values=True)
    fields = dict(form)
    _check_amount(fields.get("amount", ""), fields.get("currency", "").lower())
    excluded = [value for name, value in form if name.partition("[")[0] == _EXCLUDED]
    others = [(n, v) for n, v in form if n != "description" and n.partition("[")[0] != _EXCLUDED]
    cast("Any", request)._read_bytes = urlencode(others).encode()  # noqa: SLF001 - aiohttp has no public API
    return {"description": fields.get("description"), _EXCLUDED: excluded or None}


def store_details(intent: Json, details: dict[str, Any]) -> web.Response:
    """Store the fields that `check_intent` returned."""
    stored = _objects[f"payment_intent:{intent['id']}"]
    for name, value in details.items():
        setattr(stored, name, value)
    return web.Response(body=json.dumps(intent | details), content_type="application/json")


def _check_amount(amount: str, currency: str) -> None:
    if not (amount.isascii() and amount.isdecimal()):
        return  # localstripe rejects it
    if len(amount.lstrip("0")) > DIGITS_MAX.get(currency, _DIGITS_MAX):
        raise RefusalError(400, "Amount is too large.", code="amount_too_large", param="amount")
    if int(amount) < MINIMUMS.get(currency, 1):
        raise RefusalError(400, "Amount is too small.", code="amount_too_small", param="amount")
