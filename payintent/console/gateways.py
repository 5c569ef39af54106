"""Pages for gateways and chains, with outages, endpoints and runbook steps for problems."""

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any

from starlette.responses import Response

from payintent.chains import store as chain_store
from payintent.chains import watch_store as chain_watch_store
from payintent.chains.compare_endpoints import EndpointStatus
from payintent.chains.operations import load_chain_view
from payintent.chains.store import ChainCursor, ChainRecord
from payintent.console.access import OperatorVisit
from payintent.console.lists import read_merchant_names
from payintent.console.operation_pages import list_allowed_actions
from payintent.console.rendering import to_plain
from payintent.console.today import format_approximate_age
from payintent.core.texts import format_count
from payintent.db.database import get_current_time
from payintent.evm.chain_reader import Finality
from payintent.gateway_accounts.health import GatewayChannel, GatewayOutage
from payintent.gateway_accounts.operations import ListAccounts
from payintent.gateway_accounts.providers_operations import (
    ListGatewayErrors,
    ListGatewayOutages,
    ListProviders,
)
from payintent.http.docs.documents import RUNBOOK, read_document
from payintent.http.docs.markdown import render_markdown

_ERRORS_MAX = 5
_LINK_TAG = re.compile(r'<a href="[^"<]*">|</a>')
_HALTED_HEADING = "A chain is halted"
_UNWATCHED_HEADING = "A chain is not watched"


async def get_gateways(visit: OperatorVisit) -> Response:
    providers = await visit.read(ListProviders())
    accounts = await visit.read(ListAccounts())
    outages = await visit.read(ListGatewayOutages())
    by_channel = {(outage.account_id, outage.channel): outage for outage in outages}
    return visit.render(
        "gateways.html",
        merchant_names=await read_merchant_names(visit, accounts),
        now=await get_current_time(visit.context.database),
        providers=[
            (provider, [account for account in accounts if account.provider == provider.name])
            for provider in providers
        ],
        channel_outages={
            account.id: [by_channel.get((account.id, channel)) for channel in GatewayChannel]
            for account in accounts
        },
        channel_state=_describe_channel_state,
        outages=outages,
        errors=await visit.read(ListGatewayErrors(limit=_ERRORS_MAX)),
        allowed=list_allowed_actions(visit),
    )


def _describe_channel_state(outage: GatewayOutage | None, now: datetime) -> tuple[str, str]:
    if outage is None:
        return "available", "good"
    return ("circuit open", "bad") if outage.until > now else ("retry pending", "warn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSection:
    chain: ChainRecord
    cursor: ChainCursor | None  # None if no merchant uses this chain
    sessions: int  # open on-chain sessions
    endpoints: list[EndpointStatus]
    view: dict[str, Any]  # the chain as `chain.list` shows it

    @property
    def sweep_conditions(self) -> list[str]:
        """The conditions under which deposits are swept."""
        chain = self.chain
        return [
            format_count(chain.sweep_count, "address is unswept", "addresses are unswept"),
            f"a deposit is {_format_duration(chain.sweep_after_s)} old",
            *(
                f"unswept deposits are worth {token['sweep_value']} {token['symbol']}"
                for token in self.view["tokens"]
                if token["sweep_value"] != "0"
            ),
        ]

    @property
    def is_used(self) -> bool:
        return self.cursor is not None or bool(self.endpoints)

    @property
    def latest_block(self) -> int | None:
        blocks = (state.latest for state in self.endpoints)
        return max((block for block in blocks if block is not None), default=None)

    @property
    def runbook(self) -> str | None:
        """The runbook section for the chain's current problem, as HTML; None if there is none."""
        if self.cursor is None:
            return None
        if self.cursor.halted is not None:
            return render_runbook_section(_HALTED_HEADING)
        return None if self.cursor.watched else render_runbook_section(_UNWATCHED_HEADING)


async def get_chains(visit: OperatorVisit) -> Response:
    """`GET /chains`: all chains. Endpoint queries time out after four seconds."""
    database = visit.context.database
    records = await chain_store.list_chains(database)
    views = [await load_chain_view(database, chain) for chain in records]
    sessions = {
        watch.chain: watch.sessions for watch in await chain_watch_store.list_watches(database)
    }
    endpoint_statuses = await asyncio.gather(
        *(visit.context.endpoints.compare(chain) for chain in records)
    )
    sections = [
        ChainSection(
            chain=chain,
            cursor=await chain_store.get_cursor(database, chain.slug),
            sessions=sessions.get(chain.slug, 0),
            endpoints=endpoints,
            view=to_plain(view),
        )
        for chain, endpoints, view in zip(records, endpoint_statuses, views, strict=True)
    ]
    now = await get_current_time(database)
    return visit.render(
        "chains.html",
        sections=[section for section in sections if section.is_used],
        unused_chains=[section.chain for section in sections if not section.is_used],
        now=now,
        ago=partial(_format_ago, now=now),
        finality=_describe_finality,
        allowed=list_allowed_actions(visit),
    )


@cache
def render_runbook_section(heading: str) -> str:
    """Render the steps of a runbook section as HTML, without its heading and alert names.

    Links are removed, because their targets are not on the page.
    """
    _, _, text = read_document(RUNBOOK).partition(f"\n### {heading}\n")
    section = text.partition("\n### ")[0].partition("\n## ")[0]
    _, _, steps = section.partition("\n\n- **Symptoms**")
    return _LINK_TAG.sub("", render_markdown("- **Symptoms**" + steps)[1])


def _describe_finality(chain: ChainRecord) -> str:
    if chain.instant_finality:
        return "immediately"
    if chain.finality == Finality.FINALIZED:
        return "when the nodes report it"
    if chain.confirmations is None:
        return "not set: the chain cannot be watched"
    return f"after {format_count(chain.confirmations, 'confirmation')}"


def _format_duration(seconds: int) -> str:
    hours, rest = divmod(seconds, 3_600)
    return f"{seconds} s" if rest else f"{hours} h"


def _format_ago(moment: datetime | None, now: datetime) -> str:
    return "never" if moment is None else f"{format_approximate_age(moment, now)} ago"
