"""A fake gateway with configurable refunds and capabilities."""

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

TIMED_OUT = OutcomeUnknown(detail="timeout")
NOT_CONTACTED = NotContacted(detail="no connection")


class RefundGateway(FakeGateway):
    """A gateway that calls `during` for each refund, before it responds."""

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


def set_capabilities(world: World, **abilities: Any) -> None:
    """Change the gateway's capabilities."""
    world.gateway.capabilities = replace(world.gateway.capabilities, **abilities)
