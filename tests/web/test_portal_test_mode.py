"""Test the portal's test mode in a browser."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Response, expect
from pytest_asyncio import fixture

from payintent.members.model import MemberRole
from tests.support.timeouts import PATIENCE_S
from tests.web.gallery import Gallery
from tests.web.portal_pages import PortalScene, sign_in_by_link
from tests.web.test_html import validate_html
from tests.web.test_portal import find_problems
from tests.web.visiting import screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]
expect.set_options(timeout=PATIENCE_S * 1_000)


@fixture(loop_scope=LOOP)
async def scene(gallery: Gallery) -> PortalScene:
    """The portal of a merchant without a test merchant."""
    world = gallery.plain
    merchant_id = (await world.add_merchant("Nimbus Atlases")).merchant.id
    base = world.service.settings.portal_address
    return PortalScene(replace(world, merchant_id=merchant_id), base, "", "", "", "")


@fixture(loop_scope=LOOP)
async def browser_context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await screen(browser)
    yield context
    await context.close()


async def _press(page: Page, name: str) -> None:
    await page.get_by_role("button", name=name, exact=True).click()


async def test_a_developer_sets_up_test_mode_on_accessible_pages(
    scene: PortalScene, browser_context: BrowserContext, tmp_path: Path
) -> None:
    errors: list[str] = []
    documents: dict[Page, Response] = {}

    def keep_document(response: Response) -> None:
        if response.request.resource_type == "document" and "location" not in response.headers:
            documents[response.frame.page] = response

    async def check_page(page: Page, name: str) -> None:
        (tmp_path / f"{name}.html").write_text(await documents[page].text())
        errors.extend(f"{name}: {problem}" for problem in await find_problems(page))
        await page.set_viewport_size({"width": 1280, "height": 900})

    browser_context.on("response", keep_document)
    page = await sign_in_by_link(
        browser_context, scene, MemberRole.DEVELOPER, "dora@nimbus.example"
    )
    browser_context.on("console", lambda message: errors.append(message.text))
    await page.goto(f"{scene.base}/settings")
    await expect(page.get_by_text("Only your payment service provider")).to_be_visible()
    await check_page(page, "live-settings")
    await _press(page, "Test")
    await expect(page.get_by_role("heading", name="Your test side is ready")).to_be_visible()
    await expect(page.get_by_text("sk_test_")).to_be_visible()
    await check_page(page, "created")

    await page.get_by_role("link", name="Settings").click()
    await page.get_by_label("Return URL").fill("javascript:alert(1)")
    await page.get_by_label("Colour").fill("#112233")
    await _press(page, "Save")
    await expect(page.get_by_role("alert")).to_contain_text("Return URL must be an https URL")
    await expect(page.get_by_label("Colour")).to_have_value("#112233")
    await check_page(page, "refused")
    colleague = await browser_context.new_page()
    await colleague.goto(f"{scene.base}/settings")
    await page.get_by_label("Return URL").fill("http://shop.nimbus.example/back")
    await _press(page, "Save")
    await expect(page.get_by_role("status")).to_contain_text("The settings have been saved")
    await check_page(page, "saved")
    await colleague.get_by_label("Return URL").fill("http://shop.nimbus.example/other")
    await _press(colleague, "Save")
    await expect(colleague.get_by_role("alert")).to_contain_text(
        "Another member has changed the same settings"
    )
    await expect(colleague.get_by_text("Another member has set this to")).to_be_visible()
    await check_page(colleague, "conflict")

    await page.goto(f"{scene.base}/settings")
    await page.get_by_text("Rotate the secret…").click()
    await _press(page, "Rotate secret")
    await expect(page.get_by_text("whsec_")).to_be_visible()
    await check_page(page, "secret")
    await page.get_by_role("link", name="API keys").click()
    await check_page(page, "keys")
    await page.get_by_label("Name").fill("continuous integration")
    await _press(page, "Create test key")
    await expect(page.get_by_text("sk_test_")).to_be_visible()
    await page.get_by_role("link", name="Continue").click()
    await expect(page.get_by_role("cell", name="continuous integration")).to_be_visible()
    await _press(page, "Live")
    await expect(page.get_by_role("cell", name="continuous integration")).to_have_count(0)
    errors = [error for error in errors if "Failed to load resource" not in error]
    assert errors == [], "\n".join(errors)
    assert await validate_html(tmp_path) == ""


async def test_the_mode_switch_and_the_forms_work_without_scripts(
    scene: PortalScene, browser_context: BrowserContext
) -> None:
    assert browser_context.browser is not None
    context = await browser_context.browser.new_context(java_script_enabled=False)
    page = await sign_in_by_link(context, scene, MemberRole.DEVELOPER, "nora@nimbus.example")
    await page.goto(f"{scene.base}/settings")
    await _press(page, "Test")
    await page.goto(f"{scene.base}/settings")
    await page.get_by_label("Callback URL").fill("http://127.0.0.1:9/hooks")
    await _press(page, "Save")
    await expect(page.get_by_role("status")).to_contain_text("The settings have been saved")
    await _press(page, "Send test event")
    await expect(page.get_by_role("heading", name="payment.completed")).to_be_visible()
    await page.get_by_role("link", name="pay_").first.click()
    await expect(page.get_by_role("heading", name="PAID")).to_be_visible()
    await context.close()
