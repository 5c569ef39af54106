"""A gateway whose capabilities differ from its adapter's."""

from dataclasses import replace
from typing import Any

from payintent.gateways.port import GatewayCapabilities
from payintent.reconciliation.runs import ReconciliationContext


def with_capabilities(context: ReconciliationContext, **changes: Any) -> ReconciliationContext:
    def capabilities(provider: str) -> GatewayCapabilities:
        installed = context.capabilities(provider)
        assert installed is not None
        return replace(installed, **changes)

    return replace(context, capabilities=capabilities)
