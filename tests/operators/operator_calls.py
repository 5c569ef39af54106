"""Operation requests for the tests of the operator port."""

from typing import Any

from payintent.operations import OPERATIONS
from payintent.operators.operation import ReadOperation
from tests.support.world import Answer, Api

WHY = "ticket 7"
BAD = (400, "BAD_REQUEST")


def route_of(action: str) -> str:
    return f"/operator/{action.replace('.', '/')}"


def is_read(action: str) -> bool:
    return issubclass(OPERATIONS[action], ReadOperation)


async def request_operation(
    api: Api, token: str, action: str, fields: dict[str, Any], **options: Any
) -> Answer:
    """Request an operation with a query or a body, depending on its kind."""
    headers = api.bearer(token)
    if is_read(action):
        query = {name: str(value) for name, value in fields.items()}
        return await api.send("GET", route_of(action), params=query, headers=headers, **options)
    return await api.send("POST", route_of(action), json=fields, headers=headers, **options)


async def post(api: Api, token: str, action: str, body: bytes) -> Answer:
    """Send a body unchanged."""
    return await api.send("POST", route_of(action), data=body, headers=api.bearer(token))
