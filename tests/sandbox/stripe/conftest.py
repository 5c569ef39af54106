"""Stripe's library, as a client of the Stripe emulator at a test's `url`."""

from collections.abc import AsyncGenerator, Callable

import aiohttp
import pytest
import stripe

from tests.support import stripe as sandbox

Connect = Callable[[str], stripe.StripeClient]


@pytest.fixture
async def http() -> AsyncGenerator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


@pytest.fixture
def connect(url: str, http: aiohttp.ClientSession) -> Connect:
    """Create a client with a secret key."""

    def connected(key: str) -> stripe.StripeClient:
        return stripe.StripeClient(
            key,
            base_addresses={"api": url},
            http_client=stripe.AIOHTTPClient(session=http),
            max_network_retries=0,
        )

    return connected


@pytest.fixture
def api(connect: Connect) -> stripe.StripeClient:
    return connect(sandbox.SECRET_KEY)
