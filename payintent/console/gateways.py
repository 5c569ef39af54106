"""The gateways page, with providers, accounts, outages and recent errors."""

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

_ERRORS = 5


async def get_gateways(visit: OperatorVisit) -> Response:
    providers = await visit.read(ListProviders())
    accounts = await visit.read(ListAccounts())
    outages = await visit.read(ListGatewayOutages())
    by_channel = {(outage.account_id, outage.channel): outage for outage in outages}
    return visit.render(
        "gateways.html",
        now=await current_time(visit.context.database),
        providers=[
            (provider, [account for account in accounts if account.provider == provider.name])
            for provider in providers
        ],
        channel_outages={
            account.id: [by_channel.get((account.id, channel)) for channel in GatewayChannel]
            for account in accounts
        },
        channel_state=_channel_state,
        outages=outages,
        errors=await visit.read(ListGatewayErrors(limit=_ERRORS)),
        allowed=allowed_actions(visit),
    )


def _channel_state(outage: GatewayOutage | None, now: datetime) -> tuple[str, str]:
    if outage is None:
        return "available", "good"
    return ("circuit open", "bad") if outage.until > now else ("retry pending", "warn")
