"""The response to a request that is shed because of overload."""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payintent.api.content_security_policy import content_security_policy
from payintent.api.errors import error_response, random_retry_s
from payintent.api.middleware import CommonHeaders
from payintent.domain.errors import ErrorCode

_PAGES = ("/c/", "/merchant")
_PAGE = (
    "<!doctype html><title>Just a moment</title>"
    "<p>We are very busy at the moment. Please try again in a few seconds."
)


async def _answer_busy(scope: Scope, receive: Receive, send: Send) -> None:
    wait_s = random_retry_s()
    if scope["path"].startswith(_PAGES):
        headers = {"Retry-After": str(wait_s), "Content-Security-Policy": content_security_policy()}
        response = Response(_PAGE, 503, headers, "text/html")
    else:
        message = "too many concurrent requests; try again later"
        response = error_response(ErrorCode.SERVICE_UNAVAILABLE, message, retry_after_s=wait_s)
    await response(scope, receive, send)


#: The application for shed requests.
shed = CommonHeaders(_answer_busy)
