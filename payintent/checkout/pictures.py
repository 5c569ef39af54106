"""Pictures on the hosted page: served from our own origin, so that browsers ask no other."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.errors import error_response
from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.domain.errors import ErrorCode
from payintent.domain.web_origin import web_origin
from payintent.web.static_files import HEADERS

_URL_CHARS_MAX = 2_048  # a longer one was cut
_FOR_A_WHILE = {"Cache-Control": "public, max-age=3600"}


def picture_path(context: CheckoutContext, url: str | None, merchant_id: int) -> str | None:
    """Return our own path of a merchant's picture; None if there is certainly none to show."""
    if url is None or len(url) >= _URL_CHARS_MAX or web_origin(url) is None or not url.isascii():
        return None
    if not (context.settings.sandbox or url.startswith("https://")):
        return None
    if context.pictures.has_failed(url):
        return None
    return f"/c/static/pictures/{context.pictures.name_of(url, merchant_id)}.webp"


async def get_picture(request: Request) -> Response:
    """`GET /c/static/pictures/{name}.webp`: a picture whose name we have signed."""
    pictures = get_checkout_context(request).pictures
    source = pictures.source_of(request.path_params["name"])
    content = await pictures.get(source) if source else None
    if content is None:
        missing = error_response(ErrorCode.NOT_FOUND, "no such picture", 404)
        missing.headers["Cache-Control"] = "no-store"  # it may be there in a while
        return missing
    return Response(content, 200, HEADERS | _FOR_A_WHILE, "image/webp")
