"""A gateway of one kind or another, as far as refunds go; and how it may be silent."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from payintent.gateways.port import (
    GatewayAccount,
    GatewayRefundRequest,
    NotContacted,
    OutcomeUnknown,
    RefundReport,
)
from tests.support.fakes import FakeGateway
from tests.support.world import World

SILENT = OutcomeUnknown(detail="timeout")
GONE = NotContacted(detail="no connection")


class RefundGateway(FakeGateway):
    """A gateway with capabilities of its own; our process may die while it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = FakeGateway.capabilities
        self.during: Callable[[GatewayRefundRequest], Any] | None = None

    async def refund(
        self, account: GatewayAccount, request: GatewayRefundRequest
    ) -> RefundReport | OutcomeUnknown:
        answer = await super().refund(account, request)
        if self.during is not None:
            self.during(request)
        return answer


def able(world: World, **abilities: Any) -> None:
    """Let the gateway be of another kind."""
    world.gateway.capabilities = replace(world.gateway.capabilities, **abilities)
