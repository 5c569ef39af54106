"""How the tests of the operator port ask for an operation."""

from typing import Any

from payintent.operations import OPERATIONS
from payintent.operators.operation import ReadOperation
from tests.support.world import Answer, Api

WHY = "ticket 7"
BAD = (400, "BAD_REQUEST")


def route_of(action: str) -> str:
    return f"/operator/{action.replace('.', '/')}"


def reads(action: str) -> bool:
    return issubclass(OPERATIONS[action], ReadOperation)


async def ask(api: Api, token: str, action: str, sent: dict[str, Any], **options: Any) -> Answer:
    """Ask for an operation as its kind is asked for: query or body."""
    headers = api.bearer(token)
    if reads(action):
        query = {name: str(value) for name, value in sent.items()}
        return await api.send("GET", route_of(action), params=query, headers=headers, **options)
    return await api.send("POST", route_of(action), json=sent, headers=headers, **options)


async def post(api: Api, token: str, action: str, body: bytes) -> Answer:
    """Send a body as it is."""
    return await api.send("POST", route_of(action), data=body, headers=api.bearer(token))
