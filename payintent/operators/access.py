"""Authenticate operator requests by token, and decode their JSON fields."""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core import access as api_key
from payintent.core.errors import BadRequestError
from payintent.db.database import Database
from payintent.http.address_limits import (
    AuthenticationAttempts,
    UnauthorizedError,
    find_mismatch_reason,
    read_bearer_key,
)
from payintent.operators import tokens_store
from payintent.operators.operation import Actor
from payintent.operators.tokens_store import AuthenticatedOperator
from payintent.runtime.encryption import Encryption
from payintent.runtime.log import get_logger

_log = get_logger("operator")
OperatorHandler = Callable[[Request, Actor], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class OperatorApi:
    """Authenticates operators by token, and logs their requests."""

    database: Database
    encryption: Encryption
    attempts: AuthenticationAttempts

    def route(
        self, path: str, handler: OperatorHandler, methods: Sequence[str] = ("GET",)
    ) -> Route:
        """Return a route that authenticates the operator before calling the handler."""

        @wraps(handler)
        async def handle(request: Request) -> Response:
            return await handler(request, await self._authenticate(request))

        return Route(path, handle, methods=methods)

    async def _authenticate(self, request: Request) -> Actor:
        async with self.attempts.attempt(request, api_key.OPERATOR):
            token = read_bearer_key(request.headers, api_key.OPERATOR)
            operator = await check_operator_token(self.database, self.encryption, token)
        _log.info("operator", who=operator.name, method=request.method, path=request.url.path)
        return Actor(operator.name, role=operator.role, uses_http=True)


async def check_operator_token(
    database: Database, encryption: Encryption, token: api_key.ApiKeyText
) -> AuthenticatedOperator:
    """Return a token's operator. Raises `UNAUTHORIZED` if the token is invalid."""
    operator = await tokens_store.find_by_public_id(database, token.public_id)
    if operator is None or not hmac.compare_digest(operator.digest, encryption.digest(token.text)):
        raise UnauthorizedError(
            api_key.OPERATOR, find_mismatch_reason(operator and operator.digest)
        )
    if not operator.was_used_recently:
        await tokens_store.record_use(database, token.public_id)
    return operator


def read_fields(body: bytes) -> dict[str, Any]:
    """Decode a JSON object; an empty body and `null` count as empty. Raises `BAD_REQUEST`."""
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError("the body must be a JSON object") from error


def pop_reason(fields: dict[str, Any]) -> str:
    """Remove and return the field `why`. Raises `BAD_REQUEST` unless it is a string."""
    reason = fields.pop("why", "")
    if not isinstance(reason, str):
        raise BadRequestError("why must be a string")
    return reason
