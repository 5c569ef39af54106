"""Callbacks from gateways: verified as raw bytes with one account, answered as each expects."""

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import get_context
from payintent.api.request_body import read_raw
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import CallbackRequest
from payintent.payments.answer_callback import answer_callback

_ACCOUNT_DIGITS_MAX = 18  # of a bigint; the framework's own `int` takes any number, and fails


async def post_callback(request: Request) -> Response:
    """`POST /callbacks/{provider}/{account_id}`; what is verified and kept is a success."""
    service = get_context(request).service
    provider: str = request.path_params["provider"]
    account_id = _account_id(request.path_params["account_id"])
    connection = await service.accounts.connect(account_id, provider) if account_id else None
    if connection is None:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such provider account")
    own_max = connection.gateway.capabilities.callback_bytes_max
    callback = CallbackRequest(
        method=request.method,
        headers={name.lower(): value for name, value in request.headers.items()},
        query=dict(request.query_params),
        body=await read_raw(request, min(own_max, service.settings.callback_bytes_max)),
    )
    answer = await answer_callback(service.callback_receiver, connection, callback)
    return Response(answer.body, 200, media_type=answer.content_type)


def _account_id(text: str) -> int | None:
    well_formed = text.isascii() and text.isdecimal() and len(text) <= _ACCOUNT_DIGITS_MAX
    return int(text) if well_formed else None
