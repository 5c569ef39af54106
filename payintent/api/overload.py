"""The answer to a request that is shed, because too many others are under way."""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payintent.api.content_security_policy import content_security_policy
from payintent.api.errors import again_s, error_response
from payintent.api.middleware import CommonHeaders
from payintent.domain.errors import ErrorCode

_PAGES = ("/c/", "/merchant")
_PAGE = (
    "<!doctype html><title>Just a moment</title>"
    "<p>Too many people are here just now. Please try again in a moment."
)


async def _busy(scope: Scope, receive: Receive, send: Send) -> None:
    wait_s = again_s()
    if scope["path"].startswith(_PAGES):
        headers = {"Retry-After": str(wait_s), "Content-Security-Policy": content_security_policy()}
        answer = Response(_PAGE, 503, headers, "text/html")
    else:
        message = "too many requests are under way; send again later"
        answer = error_response(ErrorCode.SERVICE_UNAVAILABLE, message, retry_after_s=wait_s)
    await answer(scope, receive, send)


#: The application that answers shed requests.
shed = CommonHeaders(_busy)
