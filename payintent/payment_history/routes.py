"""Operator API route that returns a payment and its history."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from payintent.http.responses import json_response
from payintent.operators.access import OperatorApi
from payintent.operators.operation import Actor, OperationContext, to_json_value
from payintent.operators.submit import run_operation
from payintent.payment_history.operations import ShowPayment


@dataclass(frozen=True, slots=True)
class PaymentHistoryRoutes:
    api: OperatorApi
    context: OperationContext

    def routes(self) -> list[Route]:
        return [self.api.route("/operator/payments/{payment_id}", self.get_payment)]

    async def get_payment(self, request: Request, actor: Actor) -> Response:
        operation = ShowPayment(payment_id=request.path_params["payment_id"])
        return json_response(to_json_value(await run_operation(self.context, operation, actor)))
