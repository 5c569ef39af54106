"""A gateway of one kind or another, as far as refunds go; and how it may be silent."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from payintent.domain.gateway import (
    Account,
    NotContacted,
    RefundReport,
    RefundRequest,
    Unknown,
)
from tests.support.fakes import FakeGateway
from tests.support.world import World

SILENT = Unknown(detail="timeout")
GONE = NotContacted(detail="no connection")


class RefundGateway(FakeGateway):
    """A gateway with capabilities of its own; our process may die while it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = FakeGateway.capabilities
        self.during: Callable[[RefundRequest], Any] | None = None

    async def refund(self, account: Account, request: RefundRequest) -> RefundReport | Unknown:
        answer = await super().refund(account, request)
        if self.during is not None:
            self.during(request)
        return answer


def able(world: World, **abilities: Any) -> None:
    """Let the gateway be of another kind."""
    world.gateway.capabilities = replace(world.gateway.capabilities, **abilities)
