"""Call the browser SDK on a shop's page, and act as the merchant's server."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Page

from payintent.core import ids
from tests.support.onchain import ChainWorld
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Answer, Api
from tests.web.sdk_shop import Shop

PATIENCE_MS = 1_000 * PATIENCE_S
POLL_S = 0.02
LONG_S = 86_400
NATIVE = "NATIVED"

#: Returns a call's result, or its error as JSON and the error's other fields.
_CALL = """async ({ script, argument }) => {
  try {
    return { result: await eval(script)(argument) };
  } catch (error) {
    const { retryAfterMs, status, failureReason, fds, name } = error;
    const more = JSON.parse(JSON.stringify({ retryAfterMs, status, failureReason, fds, name }));
    return { error: error.toJSON?.() ?? { code: String(error) }, more };
  }
}"""


@dataclass
class SdkPage:
    """A shop's page that calls the browser SDK, and the merchant's server."""

    api: Api
    shop: Shop
    page: Page

    async def open(self, name: str = "shop") -> None:
        """Open a page of the shop, whose origin differs from the service's."""
        await self.page.goto(f"{self.shop.url}/{name}")
        if name == "bare":
            await self.page.wait_for_function("globalThis.loader")

    async def call(self, script: str, argument: Any = None) -> dict[str, Any]:
        """Call the SDK on the page; return `result`, or `error` with its `more` fields."""
        return await self.page.evaluate(_CALL, {"script": script, "argument": argument})

    async def expect_error(self, script: str, argument: Any = None) -> dict[str, Any]:
        """Make a call that must fail; return its error."""
        outcome = await self.call(script, argument)
        assert "error" in outcome, outcome
        return outcome["error"]

    async def start(self, name: str, script: str, argument: Any = None) -> None:
        """Start a call without waiting. `result_of` returns its result later."""
        starter = "argument => { globalThis[argument.name] = call(argument.invocation); }"
        await self.page.evaluate(
            starter.replace("call", f"({_CALL})"),
            {"name": name, "invocation": {"script": script, "argument": argument}},
        )

    async def result_of(self, name: str) -> dict[str, Any]:
        return await self.page.evaluate("name => globalThis[name]", name)

    async def create(self, **changes: Any) -> Answer:
        """Create a payment that expires after a day."""
        created = await self.api.create(**({"expires_in": LONG_S} | changes))
        assert created.status == 201, created.body
        return created

    async def register_origin(self) -> None:
        """Allow the shop's origin to embed the checkout, as the operator does."""
        await self.api.world.rows(
            "UPDATE merchant SET allowed_origins = ARRAY[$1]::text[]", self.shop.url
        )

    async def expose_create(self) -> list[dict[str, Any]]:
        """Allow the page to create payments; return a list that collects its requests."""
        requests: list[dict[str, Any]] = []

        async def create(request: dict[str, Any]) -> dict[str, str]:
            requests.append(request)
            amount = {name: request[name] for name in ("amount", "currency") if name in request}
            created = await self.create(**amount)
            return {"checkoutUrl": created.json["checkout_url"]}

        await self.page.expose_function("createCheckout", create)
        return requests


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(POLL_S)


async def wallet_session(ground: ChainWorld, token: str) -> list[str]:
    """Select a token for a new payment; return the ids of its checkout and its session."""
    payment, session = await ground.bill(token, expires_in_s=LONG_S)
    return [payment.checkout_id, ids.format_id(ids.SESSION, session.id)]
