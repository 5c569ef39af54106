"""A buyer on a page of the shop, and the merchant's server."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Page

from payintent.core import ids
from tests.support.onchain import ChainWorld
from tests.support.patience import PATIENCE_S
from tests.support.world import Answer, Api
from tests.web.sdk_shop import Shop

PATIENCE_MS = 1_000 * PATIENCE_S
LOOK_S = 0.02
LONG_S = 86_400
NATIVE = "NATIVED"

#: Gives what a call resolves with, or the error as it tells itself and what else it carries.
_CALL = """async ({ script, given }) => {
  try {
    return { result: await eval(script)(given) };
  } catch (error) {
    const { retryAfterMs, status, failureReason, fds, name } = error;
    const more = JSON.parse(JSON.stringify({ retryAfterMs, status, failureReason, fds, name }));
    return { error: error.toJSON?.() ?? { code: String(error) }, more };
  }
}"""


@dataclass
class Desk:
    """A buyer on the shop's page, and the merchant's server."""

    api: Api
    shop: Shop
    page: Page

    async def open(self, name: str = "shop") -> None:
        """Open a page of the shop, whose origin differs from the service's."""
        await self.page.goto(f"{self.shop.url}/{name}")
        if name == "bare":
            await self.page.wait_for_function("globalThis.loader")

    async def call(self, script: str, given: Any = None) -> dict[str, Any]:
        """Call the SDK on the page; return `result`, or `error` with its `more` fields."""
        return await self.page.evaluate(_CALL, {"script": script, "given": given})

    async def fails(self, script: str, given: Any = None) -> dict[str, Any]:
        """Make a call that must fail; return the error."""
        said = await self.call(script, given)
        assert "error" in said, said
        return said["error"]

    async def start(self, name: str, script: str, given: Any = None) -> None:
        """Start a call whose result `ends` later returns."""
        held = "given => { globalThis[given.name] = call(given.what); }"
        await self.page.evaluate(
            held.replace("call", f"({_CALL})"),
            {"name": name, "what": {"script": script, "given": given}},
        )

    async def ends(self, name: str) -> dict[str, Any]:
        return await self.page.evaluate("name => globalThis[name]", name)

    async def create(self, **changes: Any) -> Answer:
        """Create a payment that expires after a day."""
        created = await self.api.create(**({"expires_in": LONG_S} | changes))
        assert created.status == 201, created.body
        return created

    async def register(self) -> None:
        """Allow the shop's origin to embed the checkout, as the operator does."""
        await self.api.world.rows(
            "UPDATE merchant SET allowed_origins = ARRAY[$1]::text[]", self.shop.url
        )

    async def expose_create(self) -> list[dict[str, Any]]:
        """Let the page request payments from its server; return the requests as they arrive."""
        wanted: list[dict[str, Any]] = []

        async def create(asked: dict[str, Any]) -> dict[str, str]:
            wanted.append(asked)
            amount = {name: asked[name] for name in ("amount", "currency") if name in asked}
            created = await self.create(**amount)
            return {"checkoutUrl": created.json["checkout_url"]}

        await self.page.expose_function("createCheckout", create)
        return wanted


async def until(told: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not told():
            await asyncio.sleep(LOOK_S)


async def wallet_session(ground: ChainWorld, token: str) -> list[str]:
    """Select a token for a new payment; return the ids of its checkout and its session."""
    payment, session = await ground.bill(token, expires_in_s=LONG_S)
    return [payment.checkout_id, ids.format_id(ids.SESSION, session.id)]
