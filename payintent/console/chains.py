"""Chains: their endpoints side by side, how far each is read, and what to do where one is not."""

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.docs.files import read_document
from payintent.api.docs.pages import render_markdown
from payintent.console.access import signed_in
from payintent.console.context import ConsoleContext, get_console_context
from payintent.console.operations import list_allowed
from payintent.console.rendering import render
from payintent.console.today_figures import age
from payintent.evm.chain_reader import Finality
from payintent.onchain.compare_endpoints import EndpointState
from payintent.storage.database import current_time
from payintent.storage.onchain import chain_watch, chains
from payintent.storage.onchain.chains import ChainCursor, ChainRecord

_LINK_TAG = re.compile(r'<a href="[^"<]*">|</a>')
_HALTED = "A chain is halted"
_UNWATCHED = "A chain is not watched"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPart:
    chain: ChainRecord
    cursor: ChainCursor | None  # None: nothing of ours is there
    sessions: int  # not ended
    endpoints: list[EndpointState]
    runbook: str | None  # the section for its state, as HTML

    @property
    def newest(self) -> int | None:
        blocks = (state.latest for state in self.endpoints)
        return max((block for block in blocks if block is not None), default=None)


async def get_chains(request: Request) -> Response:
    """`GET /chains`: every chain of this installation; endpoints are asked for four seconds."""
    session = await signed_in(request)
    context = get_console_context(request)
    database = context.database
    listed = await chains.list_chains(database)
    sessions = {watch.chain: watch.sessions for watch in await chain_watch.list_watches(database)}
    parts = [
        _part(
            chain,
            await chains.get_cursor(database, chain.slug),
            sessions.get(chain.slug, 0),
            endpoints,
        )
        for chain, endpoints in zip(listed, await _compare_all(context, listed), strict=True)
    ]
    now = await current_time(database)
    return render(
        request,
        "chains.html",
        parts=[part for part in parts if part.cursor is not None or part.endpoints],
        unused=[part.chain for part in parts if part.cursor is None and not part.endpoints],
        now=now,
        ago=partial(_ago, now=now),
        finality=_finality,
        allowed={kind.action for kind in list_allowed(session.actor.role)},
    )


async def _compare_all(
    context: ConsoleContext, listed: list[ChainRecord]
) -> list[list[EndpointState]]:
    return await asyncio.gather(*(context.endpoints.compare(chain) for chain in listed))


def _part(
    chain: ChainRecord,
    cursor: ChainCursor | None,
    sessions: int,
    endpoints: list[EndpointState],
) -> ChainPart:
    section = None
    if cursor is not None and cursor.halted is not None:
        section = _HALTED
    elif cursor is not None and not cursor.watched:
        section = _UNWATCHED
    return ChainPart(
        chain=chain,
        cursor=cursor,
        sessions=sessions,
        endpoints=endpoints,
        runbook=None if section is None else runbook_section(section),
    )


@cache
def runbook_section(heading: str) -> str:
    """Render a section of the runbook without its heading, the names of its alerts and its links.

    Links lead to other sections, which are not on the page.
    """
    _, _, following = read_document("runbook.md").partition(f"\n### {heading}\n")
    section = following.partition("\n### ")[0].partition("\n## ")[0]
    _, _, steps = section.partition("\n\n- **See**")
    return _LINK_TAG.sub("", render_markdown("- **See**" + steps)[1])


def _finality(chain: ChainRecord) -> str:
    if chain.instant_finality:
        return "as they appear"
    if chain.finality == Finality.FINALIZED:
        return "where the nodes say so"
    if chain.confirmations is None:
        return "not set: the chain cannot be watched"
    return f"after {chain.confirmations} confirmations"


def _ago(moment: datetime | None, now: datetime) -> str:
    return "never" if moment is None else f"{age(moment, now)} ago"
