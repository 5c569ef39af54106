"""Test sign-in with OpenID Connect in a browser, via a different site and with strict cookies."""

from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from playwright.async_api import Browser, expect
from pydantic import SecretStr
from pytest_asyncio import fixture

from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    identity_provider,
)
from tests.support.running_service import serving_operator
from tests.support.world import World
from tests.web import checks
from tests.web.visiting import screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]


@fixture(loop_scope=LOOP)
async def provider() -> AsyncGenerator[IdentityProvider]:
    async with identity_provider("localhost") as provider_server:  # a different site than 127.0.0.1
        yield provider_server


async def test_an_operator_signs_in_with_the_identity_provider(
    settings: Settings,
    service: Service,
    world: World,
    browser: Browser,
    provider: IdentityProvider,
) -> None:
    settings = settings.model_copy(
        update={
            "oidc_issuer": provider.issuer,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": SecretStr(CLIENT_SECRET),
            "oidc_roles": "payments-admins=admin",
        }
    )
    async with serving_operator(settings, _with(service, settings)) as base:
        context = await screen(browser, base_url=base)
        page = await context.new_page()
        await page.goto("/audit")
        assert await checks.axe(page) + await checks.too_small(page) == []
        sign_in_link = page.get_by_role("link", name="Sign in with localhost")
        await expect(sign_in_link).to_be_visible()
        await page.keyboard.press("Tab")
        await sign_in_link.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Audit")).to_be_visible()
        await expect(page.get_by_role("cell", name="Sign in operator.sign-in")).to_be_visible()
        provider.person |= {"groups": []}
        await page.goto("/sign-in")
        await sign_in_link.click()
        await expect(page.get_by_role("alert")).to_contain_text("does not have a role")
        assert await checks.axe(page) == []
        await page.goto("/audit")
        await expect(sign_in_link).to_be_visible()
        await context.close()


def _with(service: Service, settings: Settings) -> Service:
    """Return the service with settings that include an identity provider."""
    return replace(service, settings=settings)
