"""Test the merchant portal in a browser, from an invitation to a refund."""

import csv
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect
from pytest_asyncio import fixture

from payintent.members.model import MemberRole
from tests.support.timeouts import PATIENCE_S
from tests.web import checks
from tests.web.gallery import Gallery
from tests.web.portal_pages import (
    FINANCE_PAGES,
    PAGES,
    PortalScene,
    arrange_portal,
    sign_in_by_link,
)
from tests.web.test_html import validate_html
from tests.web.visiting import SMALL_PX, screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]
expect.set_options(timeout=PATIENCE_S * 1_000)

_SMALL = {"width": SMALL_PX, "height": 2 * SMALL_PX}
_DEVICE = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


@fixture(loop_scope=LOOP, scope="module")
async def scene(gallery: Gallery) -> PortalScene:
    return await arrange_portal(gallery.plain)


@fixture(loop_scope=LOOP)
async def browser_context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A separate browser context."""
    context = await screen(browser)
    yield context
    await context.close()


async def _add_authenticator(page: Page) -> None:
    """Add a virtual authenticator that creates passkeys and verifies its user."""
    session = await page.context.new_cdp_session(page)
    await session.send("WebAuthn.enable")
    await session.send("WebAuthn.addVirtualAuthenticator", {"options": _DEVICE})


async def test_a_member_accepts_an_invitation_adds_a_passkey_and_refunds_a_payment(
    scene: PortalScene, browser_context: BrowserContext
) -> None:
    page = await sign_in_by_link(browser_context, scene, MemberRole.FINANCE, "fin@nimbus.example")
    await _add_authenticator(page)
    await page.get_by_role("button", name="Add a passkey").click()
    await expect(page.get_by_role("cell", name="never")).to_be_visible()
    await page.get_by_role("button", name="Sign out", exact=True).click()
    await page.get_by_role("button", name="Sign in with a passkey").click()

    await page.get_by_label("Search by any ID").fill("A-1009")
    await page.get_by_role("button", name="Search").click()
    await page.get_by_role("link", name=scene.payment).click()
    await expect(page.get_by_role("heading", name="1,590.00 THB")).to_be_visible()

    await page.get_by_role("link", name="View event").first.click()
    await page.get_by_role("button", name="Resend event").click()
    await expect(page.get_by_role("status")).to_contain_text("being resent")
    [row] = await scene.world.rows("SELECT state FROM delivery WHERE event_id = $1", scene.event)
    assert row["state"] == "pending"

    await page.get_by_role("link", name=scene.payment).click()
    await page.get_by_text("Refund this payment").click()
    await page.get_by_label("Amount in THB").fill("5000")
    await page.get_by_role("button", name="Refund", exact=True).click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.get_by_label("Amount in THB").fill("25.00")
    await page.get_by_role("button", name="Refund", exact=True).click()
    await expect(page.get_by_role("cell", name="25.00 THB")).to_be_visible()


async def test_a_developer_finds_and_exports_an_order_without_javascript(
    scene: PortalScene, browser: Browser
) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await sign_in_by_link(context, scene, MemberRole.DEVELOPER, "nojs@nimbus.example")
    await page.goto(scene.address("overview"))
    await expect(page.get_by_role("heading", name="Webhooks")).to_be_visible()
    await expect(page.get_by_text("Callback URL")).to_be_visible()
    await expect(page.get_by_role("link", name="case", exact=False).first).to_be_visible()
    await page.get_by_label("Search by any ID").fill("A-1009")
    await page.get_by_role("button", name="Search").click()
    for name in ("Payments", "Events"):
        await page.get_by_role("link", name=name, exact=True).click()
        await page.get_by_role("link", name="Export as CSV").click(trial=True)
    await page.goto(f"{scene.base}/events?order_id=A-1009")
    await expect(page.get_by_role("cell", name="A-1009").first).to_be_visible()
    async with page.expect_download() as started:
        await page.get_by_role("link", name="Export as CSV").click()
    download = await started.value
    assert download.suggested_filename == "events.csv"
    rows = list(csv.DictReader((await download.path()).read_text().splitlines()))
    assert {row["order_id"] for row in rows} == {"A-1009"}
    assert scene.event in {row["id"] for row in rows}
    await context.close()


async def test_refunds_are_hidden_from_developers_and_keys_from_finance(
    scene: PortalScene, browser: Browser
) -> None:
    for role, hidden_text in (
        (MemberRole.DEVELOPER, "Refund this payment"),
        (MemberRole.FINANCE, "keys"),
    ):
        context = await screen(browser)
        page = await sign_in_by_link(context, scene, role, f"{role}-2@nimbus.example")
        await page.goto(scene.address("payment"))
        await expect(page.get_by_text("Timeline")).to_be_visible()
        assert await page.get_by_text(hidden_text).count() == 0
        if role is MemberRole.DEVELOPER:
            token = await page.locator("[name=form_token]").first.get_attribute("value")
            response = await page.request.post(
                f"{scene.address('payment')}/refunds",
                form={"form_token": token or "", "amount": "1.00", "key": str(uuid4())},
            )
            assert response.status == 403
            assert "Your role (developer) does not allow this" in await response.text()
        if role is MemberRole.FINANCE:
            answer = await page.goto(f"{scene.base}/keys")
            assert answer is not None
            assert answer.status == 403
        await context.close()


async def test_a_link_from_another_site_takes_a_signed_in_member_to_the_page(
    scene: PortalScene, browser_context: BrowserContext
) -> None:
    """Strict cookies are not sent from another site, so the sign-in page links to the target."""
    page = await sign_in_by_link(browser_context, scene, MemberRole.DEVELOPER, "dee@nimbus.example")
    elsewhere = scene.base.replace("localhost", "127.0.0.1")
    await page.goto(f"{elsewhere}/sign-in")
    await page.evaluate(f"location.href = {scene.address('events')!r}")
    await page.get_by_role("link", name="Continue").click()
    await expect(page.get_by_role("heading", name="Events")).to_be_visible()


async def test_the_sign_in_page_explains_what_to_do_without_a_passkey(
    scene: PortalScene, browser_context: BrowserContext
) -> None:
    page = await browser_context.new_page()
    await _add_authenticator(page)
    await page.goto(f"{scene.base}/sign-in")
    await page.get_by_role("button", name="Sign in with a passkey").click()
    await expect(page.get_by_role("alert")).to_contain_text("ask for a sign-in link")


async def test_a_sign_in_page_that_was_open_for_too_long_asks_for_a_reload(
    scene: PortalScene, browser_context: BrowserContext
) -> None:
    page = await browser_context.new_page()
    await _add_authenticator(page)
    await page.goto(f"{scene.base}/sign-in")
    await browser_context.clear_cookies()  # as after an hour
    await page.get_by_role("button", name="Sign in with a passkey").click()
    await expect(page.get_by_role("alert")).to_contain_text("Reload the page and try again")
    await page.reload()
    await page.get_by_role("button", name="Sign in with a passkey").click()
    await expect(page.get_by_role("alert")).to_contain_text("The passkey did not work")


async def test_every_page_is_accessible_and_valid_html(
    scene: PortalScene, browser: Browser, tmp_path: Path
) -> None:

    errors: list[str] = []
    contexts = {role: await screen(browser) for role in MemberRole}
    pages = {
        role: await sign_in_by_link(context, scene, role, f"{role}-3@nimbus.example")
        for role, context in contexts.items()
    }
    for page in pages.values():
        page.on("console", lambda message: errors.append(message.text))
    for name in PAGES:
        role = MemberRole.FINANCE if name in FINANCE_PAGES else MemberRole.DEVELOPER
        await pages[role].goto(scene.address(name))
        errors += [f"{name}: {problem}" for problem in await find_problems(pages[role])]
        (tmp_path / f"{name}.html").write_text(await _source(pages[role]))
    stranger = await (await browser.new_context()).new_page()
    for name in ("sign-in", "link/" + "A" * 43):
        await stranger.goto(f"{scene.base}/{name}")
        errors += [f"{name}: {problem}" for problem in await find_problems(stranger)]
        (tmp_path / f"{name.partition('/')[0]}.html").write_text(await _source(stranger))
    for context in (*contexts.values(), stranger.context):
        await context.close()
    errors = [error for error in errors if "Failed to load resource" not in error]
    assert errors == [], "\n".join(errors)
    assert await validate_html(tmp_path) == ""


async def _source(page: Page) -> str:
    answer = await page.context.request.get(page.url)
    return await answer.text()


async def find_problems(page: Page) -> list[str]:
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size({"width": 1280, "height": 900})
    await checks.unfold(page)
    problems = await checks.tab_problems(page) + await checks.axe(page)
    problems += await checks.overflow(page) + await checks.too_small(page)
    await page.emulate_media(color_scheme="dark")
    problems += await checks.axe(page, *checks.COLOURS)
    await page.set_viewport_size(_SMALL)
    problems += await checks.axe(page) + await checks.overflow(page) + await checks.too_small(page)
    return problems
