"""Chains in the console: endpoints, halted chains, runbooks and roles."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from pydantic import SecretStr

from payintent.console.gateways import render_runbook_section
from payintent.core.access import Role
from payintent.runtime.settings import Settings
from tests.console.operator_browser import sign_in_as, words
from tests.onchain.test_compare_endpoints import OTHER, Node, serving
from tests.support.world import Api, World

REASON = "block 1200 was final and is another one now"
CURSOR = """
    INSERT INTO chain_cursor (chain, block, head, head_at, polled_at, halted, watched_since,
        watched_until)
    VALUES ($1, 1200, 1216, clock(), clock() - interval '2 minutes', $2, clock(), clock()
        + interval '5 minutes')
"""


async def test_an_operator_can_resume_a_halted_chain(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator)
    await world.rows(CURSOR, "bsc", REASON)
    page = words(await visitor.get("/chains"))
    assert f"halted {REASON}" in page
    assert "A chain is halted from the runbook Symptoms" in page
    assert "the block in explorers that do not use your endpoints" in page
    assert "0 of 1 chains watched 1 halted" in words(await visitor.get("/"))
    assert b'href="/operations/chain/resume?chain=bsc"' in (await visitor.get("/chains")).body
    fields = {"chain": "bsc", "block": "1199", "why": "the endpoint lied"}
    answer = await visitor.post("/operations/chain/resume", **fields)
    assert answer.status == 200, words(answer)
    page = words(await visitor.get("/chains"))
    assert REASON not in page
    assert "Processed block 1,199" in page
    [entry] = await world.rows("SELECT who, why FROM audit WHERE action = 'chain.resume'")
    assert tuple(entry.values()) == ("ann", "the endpoint lied")


async def test_a_viewer_sees_a_halted_chain_but_cannot_resume_it(
    operator: Api, world: World
) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    await world.rows(CURSOR, "bsc", REASON)
    answer = await visitor.get("/chains")
    assert REASON in words(answer)
    assert b"chain/resume" not in answer.body
    answer = await visitor.post("/operations/chain/resume", chain="bsc", why="it is night")
    assert answer.status == 403
    assert await world.rows("SELECT FROM chain_cursor WHERE halted IS NOT NULL")


async def test_an_unwatched_chain_is_shown_with_its_runbook(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator, role=Role.VIEWER)
    await world.rows(CURSOR, "bsc", None)
    page = words(await visitor.get("/chains"))
    assert "watched Processed block 1,200" in page
    assert "Last polled 2 min ago" in page
    assert "from the runbook" not in page
    await world.move_clock(600)
    page = words(await visitor.get("/chains"))
    assert "not watched Processed block 1,200" in page
    assert "A chain is not watched from the runbook" in page


@pytest.mark.parametrize("heading", ["A chain is halted", "A chain is not watched"])
def test_the_runbook_contains_the_sections_that_the_page_shows(heading: str) -> None:
    section = render_runbook_section(heading)
    assert section.startswith("<ul>\n<li><strong>Symptoms</strong>")
    assert "<strong>Resolved</strong>" in section
    assert "<a " not in section


class TestEndpoints:
    """A chain with configured endpoints."""

    @pytest.fixture
    def nodes(self) -> list[Node]:
        return [Node(latest=1_300), Node(latest=1_290), Node(block_hash=OTHER, latest=1_295)]

    @pytest.fixture
    async def settings(self, settings: Settings, nodes: list[Node]) -> AsyncIterator[Settings]:
        async with AsyncExitStack() as stack:
            urls = [await stack.enter_async_context(serving(node)) for node in nodes]
            rpc = SecretStr(",".join(urls))
            yield settings.model_copy(update={"rpc_bsc": rpc, "chain_any_endpoints": True})

    async def test_all_viewers_share_a_single_comparison_of_the_endpoints(
        self, operator: Api, nodes: list[Node]
    ) -> None:
        visitor = await sign_in_as(operator, role=Role.VIEWER)
        page = words(await visitor.get("/chains"))
        assert "bsc-1 1,300 0 100" in page
        assert "bsc-2 1,290 10 100" in page
        assert page.count("different block") == 1
        assert "127.0.0.1" not in page.partition("Chains")[2]
        before = [node.request_count for node in nodes]
        await visitor.get("/chains")
        assert [node.request_count for node in nodes] == before
