"""The wallet example runs, and selects the steps that a wallet must send."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from payintent.core import ids
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.docs.parse_pages import examples, page
from tests.support.contracts import bill, contract_service, offer_tokens
from tests.support.fakes import FakeGateway
from tests.support.world import Api


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def test_the_steps_depend_on_the_allowance(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = examples(
        page("docs/integrate/stablecoins.md"), "python", "transactions that a wallet sends"
    )
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, "example", "exec"), scope)  # noqa: S102 - our own page
    monkeypatch.setenv("API_URL", f"{api.base}/v1")
    methods = await offer_tokens(api.world, "ethereum")
    _, session = await bill(api.world, methods["USDT"])
    payment = await asyncio.to_thread(scope["onchain"], ids.format_id(ids.SESSION, session.id))
    amount = int(payment["amount_smallest_unit"])
    for allowance, kinds in (
        (0, ["approve", "pay"]),
        (1, ["approve_reset", "approve", "pay"]),
        (amount - 1, ["approve_reset", "approve", "pay"]),
        (amount, ["pay"]),
    ):
        assert [step["kind"] for step in scope["select_steps"](payment, allowance)] == kinds
