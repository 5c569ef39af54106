"""Read and remember the payment method that a buyer prefers.

The cookie contains only the kind of method, such as `card` or `promptpay`. It does not identify the
buyer, the merchant or the payment.
"""

from starlette.requests import Request
from starlette.responses import Response

from payintent.checkout.context import CheckoutContext
from payintent.checkout.fields import quote_fields
from payintent.checkout.methods.order import (
    MethodPreferences,
    make_method_key,
    parse_method_key,
)
from payintent.http.pages.forms import read_cookie
from payintent.merchants.model import Quote

_COOKIE = "payintent-method"
_PATH = "/c"
_CHARS_MAX = 40
_MAX_AGE_S = 180 * 86_400


async def read_preferences(
    request: Request, context: CheckoutContext, merchant_id: int
) -> MethodPreferences:
    setup = await context.merchants.get(merchant_id)
    return MethodPreferences(
        last_key=parse_method_key(read_cookie(request, _COOKIE, _CHARS_MAX)),
        positions={method.id: method.position for method in setup.methods},
        usage=await context.method_usage.get(merchant_id),
    )


def remember_method(
    response: Response, context: CheckoutContext, quote: Quote, *, is_deposit: bool
) -> None:
    response.set_cookie(
        _COOKIE,
        make_method_key(quote_fields(quote) | {"is_deposit": is_deposit}),
        max_age=_MAX_AGE_S,
        path=_PATH,
        secure=context.urls.pages_base.startswith("https:"),
        httponly=True,
        samesite="lax",
    )
