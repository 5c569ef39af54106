"""The first page of the console."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from payintent.console.access import signed_in


async def get_home(request: Request) -> Response:
    """`GET /`: leads to the first page."""
    await signed_in(request)
    return RedirectResponse("/approvals", 303, {"Cache-Control": "no-store"})
