"""Operations over HTTP, on the operator's port.

Every operation has a route: `POST /operator/tax/set` for a change, with its fields and `why` as
JSON, or `GET /operator/tax/list` for a read, with its fields as query parameters.
"""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core import access as api_key
from payintent.core.errors import ErrorCode, RefusedError
from payintent.db.database import Database
from payintent.http.address_limits import (
    Attempts,
    UnauthorizedError,
    mismatch_reason,
    read_bearer_key,
)
from payintent.http.bodies import read_raw
from payintent.http.errors import error_response
from payintent.http.responses import json_response
from payintent.operators import tokens_store as operator_tokens
from payintent.operators.operation import (
    Actor,
    OperationContext,
    OperationType,
    ReadOperation,
    to_json_value,
)
from payintent.operators.proposals_store import Proposal
from payintent.operators.submit import convert_operation, find_operation, foresee, submit
from payintent.operators.tokens_store import AuthenticatedOperator
from payintent.runtime.encryption import Encryption
from payintent.runtime.log import get_logger

_log = get_logger("operator")
OperatorHandler = Callable[[Request, Actor], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class OperatorApi:
    """Authenticates operators by their tokens and logs their requests."""

    database: Database
    encryption: Encryption
    attempts: Attempts

    def route(
        self, path: str, handler: OperatorHandler, methods: Sequence[str] = ("GET",)
    ) -> Route:
        """Return a route that authenticates the operator and passes it to the handler."""

        @wraps(handler)
        async def handle(request: Request) -> Response:
            return await handler(request, await self._authenticate(request))

        return Route(path, handle, methods=methods)

    async def _authenticate(self, request: Request) -> Actor:
        async with self.attempts.attempt(request, api_key.OPERATOR):
            token = read_bearer_key(request.headers, api_key.OPERATOR)
            operator = await check_operator_token(self.database, self.encryption, token)
        _log.info("operator", who=operator.name, method=request.method, path=request.url.path)
        return Actor(operator.name, role=operator.role, over_http=True)


async def check_operator_token(
    database: Database, encryption: Encryption, token: api_key.ApiKeyText
) -> AuthenticatedOperator:
    """Return the operator of a well-formed token (`UNAUTHORIZED` if the token is not valid)."""
    operator = await operator_tokens.find_by_public_id(database, token.public_id)
    if operator is None or not hmac.compare_digest(operator.digest, encryption.digest(token.text)):
        raise UnauthorizedError(api_key.OPERATOR, mismatch_reason(operator and operator.digest))
    if not operator.is_use_noted:
        await operator_tokens.note_use(database, token.public_id)
    return operator


def read_fields(raw: bytes) -> dict[str, Any]:
    """Decode a JSON object; an empty body or `null` is an empty object (`BAD_REQUEST`)."""
    try:
        return msgspec.json.decode(raw or b"{}", type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(ErrorCode.BAD_REQUEST, "the body must be a JSON object") from error


def read_reason(fields: dict[str, Any]) -> str:
    """Remove and return `why`, the operator's reason (`BAD_REQUEST`)."""
    why = fields.pop("why", "")
    if not isinstance(why, str):
        raise RefusedError(ErrorCode.BAD_REQUEST, "why must be text")
    return why


@dataclass(frozen=True, slots=True)
class OperationRoutes:
    api: OperatorApi
    context: OperationContext
    proposal_view: Callable[[Proposal], object]

    def routes(self) -> list[Route]:
        path = "/operator/{subject}/{verb}"
        return [self.api.route(path, self.run_operation, ["GET", "POST"])]

    async def run_operation(self, request: Request, actor: Actor) -> Response:
        action = f"{request.path_params['subject']}.{request.path_params['verb']}"
        kind = find_operation(self.context.operations, action)
        method = "GET" if issubclass(kind, ReadOperation) else "POST"
        if request.method != method:
            response = error_response(ErrorCode.BAD_REQUEST, f"{action} takes {method}", 405)
            response.headers["Allow"] = method
            return response
        if issubclass(kind, ReadOperation):
            operation = convert_operation(dict(request.query_params), kind, strict=False)
            return self._respond(await submit(self.context, operation, actor))
        return await self._change(request, actor, kind)

    async def _change(self, request: Request, actor: Actor, kind: OperationType) -> Response:
        raw = await read_raw(request, self.context.settings.body_bytes_max)
        fields = read_fields(raw)
        why = read_reason(fields)
        dry_run = fields.pop("dry_run", False)
        operation = convert_operation(fields, kind, strict=True)
        if dry_run is True:
            return json_response(to_json_value(await foresee(self.context, operation, actor)))
        if dry_run is not False:
            raise RefusedError(ErrorCode.BAD_REQUEST, "dry_run must be true or false")
        actor = replace(actor, why=why)
        return self._respond(await submit(self.context, operation, actor))

    def _respond(self, result: object) -> Response:
        if isinstance(result, Proposal):
            return json_response({"approval": to_json_value(self.proposal_view(result))}, 202)
        value = to_json_value(result)
        return json_response({"data": value} if isinstance(value, list) else value or {})
