"""A gateway with other layouts of its settlement files than its adapter has."""

from collections.abc import Sequence
from dataclasses import replace

from payintent.gateways.port import GatewayCapabilities
from payintent.gateways.settlement_file import FileLayout
from payintent.reconciliation.intake import ReconciliationContext


def with_layouts(
    context: ReconciliationContext, layouts: Sequence[FileLayout]
) -> ReconciliationContext:
    def capabilities(provider: str) -> GatewayCapabilities:
        installed = context.capabilities(provider)
        assert installed is not None
        return replace(installed, layouts=tuple(layouts))

    return replace(context, capabilities=capabilities)
