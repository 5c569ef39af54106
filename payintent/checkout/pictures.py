"""Pictures on the hosted page, served from our own origin to protect the buyer's privacy."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.errors import error_response
from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.domain.errors import ErrorCode
from payintent.domain.web_origin import web_origin
from payintent.web.static_files import HEADERS

_URL_CHARS_MAX = 2_048  # longer URLs are cut off
_FOR_A_WHILE = {"Cache-Control": "public, max-age=3600"}


def picture_path(context: CheckoutContext, url: str | None, merchant_id: int) -> str | None:
    """Return our path of a merchant's picture; None if it is certain not to be available."""
    if url is None or len(url) >= _URL_CHARS_MAX or web_origin(url) is None or not url.isascii():
        return None
    if not (context.settings.sandbox or url.startswith("https://")):
        return None
    if context.pictures.has_failed(url):
        return None
    return f"/c/static/pictures/{context.pictures.name_of(url, merchant_id)}.webp"


async def get_picture(request: Request) -> Response:
    pictures = get_checkout_context(request).pictures
    source = pictures.source_of(request.path_params["name"])
    content = await pictures.get(source) if source else None
    if content is None:
        response = error_response(ErrorCode.NOT_FOUND, "no such picture", 404)
        response.headers["Cache-Control"] = "no-store"  # it may become available
        return response
    return Response(content, 200, HEADERS | _FOR_A_WHILE, "image/webp")
