"""Verify a gateway's callback, apply it, and build the response that the gateway expects."""

from prometheus_client import Counter

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import (
    CallbackAnswer,
    CallbackRequest,
    InvalidCallbackError,
    UnusableCallbackError,
)
from payintent.log import get_logger
from payintent.payments.gateway_accounts import GatewayConnection
from payintent.payments.receive_callback import CallbackReceiver

_log = get_logger("callbacks")
REFUSED = Counter(
    "payintent_callbacks_refused_total", "Callbacks with an invalid signature", ["provider"]
)


async def answer_callback(
    receiver: CallbackReceiver, connection: GatewayConnection, request: CallbackRequest
) -> CallbackAnswer:
    """Verify a callback with its account, apply it, and return the gateway's expected response.

    Raises `UNAUTHORIZED` if the callback is not signed with the account's credentials, and
    `BAD_REQUEST` if the gateway must be configured not to send this kind of callback.
    """
    account, gateway = connection.account, connection.gateway
    try:
        callback = gateway.parse_callback(account, request)
    except InvalidCallbackError as error:
        REFUSED.labels(account.provider).inc()
        _log.warning(
            "callback_refused", provider=account.provider, account=account.id, why=str(error)
        )
        if isinstance(error, UnusableCallbackError):
            raise RefusedError(ErrorCode.BAD_REQUEST, str(error)) from error
        raise RefusedError(ErrorCode.UNAUTHORIZED, "the callback could not be verified") from error
    await receiver.receive(account.id, callback, request.body)
    return gateway.acknowledge(callback)
