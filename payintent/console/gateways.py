"""The page of gateways: providers, their accounts, outages and recent errors."""

from dataclasses import dataclass
from datetime import datetime

from starlette.responses import Response

from payintent.console.access import OperatorVisit
from payintent.console.operations import allowed_actions
from payintent.db.database import current_time
from payintent.gateway_accounts.health import GatewayChannel, GatewayOutage
from payintent.gateway_accounts.operations import ListAccounts
from payintent.gateway_accounts.providers_operations import (
    ListGatewayErrors,
    ListGatewayOutages,
    ListProviders,
)
from payintent.gateway_accounts.store import AccountRecord, Provider

#: The number of recent errors on the page.
_ERRORS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    channel: str
    outage: GatewayOutage | None

    def state(self, now: datetime) -> tuple[str, str]:
        if self.outage is None:
            return "available", "good"
        if self.outage.until > now:
            return "circuit open", "bad"
        return "retry pending", "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    account: AccountRecord
    channels: list[ChannelRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRow:
    provider: Provider
    accounts: list[AccountRow]


async def get_gateways(visit: OperatorVisit) -> Response:
    providers = await visit.read(ListProviders())
    accounts = await visit.read(ListAccounts())
    outages = await visit.read(ListGatewayOutages())
    errors = await visit.read(ListGatewayErrors(limit=_ERRORS))
    return visit.render(
        "gateways.html",
        now=await current_time(visit.context.database),
        providers=[_provider_row(provider, accounts, outages) for provider in providers],
        outages=outages,
        errors=errors,
        allowed=allowed_actions(visit),
    )


def _provider_row(
    provider: Provider, accounts: list[AccountRecord], outages: list[GatewayOutage]
) -> ProviderRow:
    by_channel = {(outage.account_id, outage.channel): outage for outage in outages}
    return ProviderRow(
        provider=provider,
        accounts=[
            AccountRow(
                account=account,
                channels=[
                    ChannelRow(channel=channel, outage=by_channel.get((account.id, channel)))
                    for channel in GatewayChannel
                ],
            )
            for account in accounts
            if account.provider == provider.name
        ],
    )
