"""HTTP routes on the operator port that run operations.

Changes are `POST` requests such as `POST /operator/tax/set`, with the fields and `why` as JSON.
Reads are `GET` requests such as `GET /operator/tax/list`, with the fields as query parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.core.errors import BadRequestError, ErrorCode
from payintent.http.bodies import read_body
from payintent.http.errors import error_response
from payintent.http.responses import json_response
from payintent.operators.access import OperatorApi, pop_reason, read_fields
from payintent.operators.operation import (
    Actor,
    OperationContext,
    OperationType,
    ReadOperation,
    to_json_value,
)
from payintent.operators.proposals_store import Proposal
from payintent.operators.submit import convert_operation, count_changes, find_operation, submit


@dataclass(frozen=True, slots=True)
class OperationRoutes:
    api: OperatorApi
    context: OperationContext
    make_proposal_view: Callable[[Proposal], object]

    def routes(self) -> list[Route]:
        path = "/operator/{subject}/{verb}"
        return [self.api.route(path, self.run_operation, ["GET", "POST"])]

    async def run_operation(self, request: Request, actor: Actor) -> Response:
        action = f"{request.path_params['subject']}.{request.path_params['verb']}"
        operation_type = find_operation(self.context.operations, action)
        method = "GET" if issubclass(operation_type, ReadOperation) else "POST"
        if request.method != method:
            response = error_response(ErrorCode.BAD_REQUEST, f"{action} requires {method}", 405)
            response.headers["Allow"] = method
            return response
        if issubclass(operation_type, ReadOperation):
            fields = dict(request.query_params)
            operation = convert_operation(fields, operation_type, strict=False)
            return self._respond(await submit(self.context, operation, actor))
        return await self._run_change(request, actor, operation_type)

    async def _run_change(
        self, request: Request, actor: Actor, operation_type: OperationType
    ) -> Response:
        fields = read_fields(await read_body(request, self.context.settings.body_bytes_max))
        reason = pop_reason(fields)
        dry_run = fields.pop("dry_run", False)
        operation = convert_operation(fields, operation_type, strict=True)
        if dry_run is True:
            return json_response(to_json_value(await count_changes(self.context, operation, actor)))
        if dry_run is not False:
            raise BadRequestError("dry_run must be true or false")
        return self._respond(await submit(self.context, operation, replace(actor, reason=reason)))

    def _respond(self, result: object) -> Response:
        if isinstance(result, Proposal):
            return json_response({"approval": to_json_value(self.make_proposal_view(result))}, 202)
        value = to_json_value(result)
        return json_response({"data": value} if isinstance(value, list) else value or {})
