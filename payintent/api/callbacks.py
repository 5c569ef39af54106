"""Providers' callbacks: raw bytes in, verified with one account, answered as the provider likes."""

from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import Response

from payintent.api.context import get_context
from payintent.api.request_body import read_raw
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import CallbackRequest, InvalidCallbackError
from payintent.log import get_logger
from payintent.payments.receive_callback import receive_callback

_log = get_logger("callbacks")
_ACCOUNT_DIGITS_MAX = 18  # of a bigint; the framework's own `int` takes any number, and fails

REFUSED = Counter(
    "payintent_callbacks_refused_total", "Callbacks that were not signed well", ["provider"]
)


async def post_callback(request: Request) -> Response:
    """`POST /callbacks/{provider}/{account_id}`; whatever was verified is answered with success."""
    service = get_context(request).service
    provider: str = request.path_params["provider"]
    account_id = _account_id(request.path_params["account_id"])
    account = await service.accounts.get(account_id) if account_id is not None else None
    gateway = service.accounts.gateway(provider)
    if account is None or gateway is None or account.provider != provider:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such provider account")
    own_max = gateway.capabilities.callback_bytes_max
    raw = await read_raw(request, min(own_max, service.settings.callback_bytes_max))
    came = CallbackRequest(
        method=request.method,
        headers={name.lower(): value for name, value in request.headers.items()},
        query=dict(request.query_params),
        body=raw,
    )
    try:
        callback = gateway.parse_callback(account, came)
    except InvalidCallbackError as error:
        REFUSED.labels(provider).inc()
        _log.warning("callback_refused", provider=provider, account=account_id, why=str(error))
        raise RefusedError(ErrorCode.UNAUTHORIZED, "the callback could not be verified") from error
    await receive_callback(service.database, service.id_generator, account.id, callback, raw)
    ack = gateway.acknowledge(callback)
    return Response(ack.body, 200, media_type=ack.content_type)


def _account_id(text: str) -> int | None:
    well_formed = text.isascii() and text.isdecimal() and len(text) <= _ACCOUNT_DIGITS_MAX
    return int(text) if well_formed else None
