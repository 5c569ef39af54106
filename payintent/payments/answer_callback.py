"""A gateway's callback, from raw bytes to the answer: verified, applied, answered in its words."""

from prometheus_client import Counter

from payintent.domain.errors import ErrorCode, RefusedError
from payintent.domain.gateway import (
    CallbackAnswer,
    CallbackRequest,
    InvalidCallbackError,
)
from payintent.log import get_logger
from payintent.payments.gateway_accounts import GatewayConnection
from payintent.payments.route_callback import CallbackRouter

_log = get_logger("callbacks")


REFUSED = Counter(
    "payintent_callbacks_refused_total", "Callbacks that were not signed well", ["provider"]
)


async def answer_callback(
    receiver: CallbackRouter, connection: GatewayConnection, request: CallbackRequest
) -> CallbackAnswer:
    """Verify a callback with its account, apply it, and word the answer as the gateway likes it.

    Refused (`UNAUTHORIZED`) where it is not signed by this account.
    """
    account, gateway = connection.account, connection.gateway
    try:
        callback = gateway.parse_callback(account, request)
    except InvalidCallbackError as error:
        REFUSED.labels(account.provider).inc()
        _log.warning(
            "callback_refused", provider=account.provider, account=account.id, why=str(error)
        )
        raise RefusedError(ErrorCode.UNAUTHORIZED, "the callback could not be verified") from error
    await receiver.receive(account.id, callback, request.body)
    return gateway.acknowledge(callback)
