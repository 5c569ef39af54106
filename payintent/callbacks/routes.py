"""The route that receives gateway callbacks."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.callbacks.receive import CallbackReceiver, handle_callback
from payintent.core.errors import NotFoundError
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateways.port import CallbackRequest
from payintent.http.bodies import read_body
from payintent.http.pagination import parse_number

_ACCOUNT_MAX = 10**18 - 1  # fits in a bigint


@dataclass(frozen=True, slots=True)
class CallbackRoutes:
    accounts: GatewayAccounts
    receiver: CallbackReceiver
    body_bytes_max: int

    def routes(self) -> list[Route]:
        path = "/v1/callbacks/{provider}/{account_id}"
        return [Route(path, self.receive_callback, methods=["POST"])]

    async def receive_callback(self, request: Request) -> Response:
        provider: str = request.path_params["provider"]
        account_id = parse_number(request.path_params["account_id"], _ACCOUNT_MAX)
        connection = await self.accounts.connect(account_id, provider) if account_id else None
        if connection is None:
            raise NotFoundError("no such provider account")
        gateway_bytes_max = connection.gateway.capabilities.callback_bytes_max
        callback = CallbackRequest(
            method=request.method,
            headers={name.lower(): value for name, value in request.headers.items()},
            query=dict(request.query_params),
            body=await read_body(request, min(gateway_bytes_max, self.body_bytes_max)),
        )
        reply = await handle_callback(self.receiver, connection, callback)
        return Response(reply.body, 200, media_type=reply.content_type)
