"""Gateways: which are in service, which do not answer and why, and each account of them."""

from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from payintent.console.access import signed_in
from payintent.console.context import get_console_context
from payintent.console.listing import read_list
from payintent.console.operations import list_allowed
from payintent.console.rendering import render
from payintent.operations.accounts import ListAccounts
from payintent.operations.providers import ListGatewayErrors, ListGatewayOutages, ListProviders
from payintent.payments.gateway_health import GatewayChannel
from payintent.storage.accounts import AccountRecord, Provider
from payintent.storage.database import current_time
from payintent.storage.gateway_outages import GatewayOutage

#: How many of an account's last errors the page shows.
_ERRORS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    channel: str
    outage: GatewayOutage | None

    def state(self, now: datetime) -> tuple[str, str]:
        if self.outage is None:
            return "answers", "good"
        if self.outage.until > now:
            return "at rest", "bad"
        return "to be tried again", "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    account: AccountRecord
    channels: list[ChannelRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRow:
    provider: Provider
    accounts: list[AccountRow]


async def get_gateways(request: Request) -> Response:
    session = await signed_in(request)
    context = get_console_context(request)
    providers = await read_list(request, session, ListProviders())
    listed = await read_list(request, session, ListAccounts())
    outages = await read_list(request, session, ListGatewayOutages())
    errors = await read_list(request, session, ListGatewayErrors(limit=_ERRORS))
    return render(
        request,
        "gateways.html",
        now=await current_time(context.database),
        providers=[_provider_row(provider, listed, outages) for provider in providers],
        outages=outages,
        errors=errors,
        allowed={kind.action for kind in list_allowed(session.actor.role)},
    )


def _provider_row(
    provider: Provider, listed: list[AccountRecord], outages: list[GatewayOutage]
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
            for account in listed
            if account.provider == provider.name
        ],
    )
