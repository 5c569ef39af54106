"""Test an operator's work in a browser: search, decisions, resends, and merchant activation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode
from uuid import UUID

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page
from pytest_asyncio import fixture

from payintent.core import ids
from payintent.core.access import Role
from payintent.onchain import pending_store as pending_transfers
from payintent.payments.cancel import cancel_by_merchant
from payintent.service import Service
from payintent.webhooks import outbox_store
from payintent.webhooks.outbox_store import AttemptRecord
from payintent.worker import run_loops
from tests.e2e.merchant import Receiver
from tests.support.contracts import bill, offer_tokens
from tests.support.fakes import captured
from tests.support.operation_examples import add_refunds_for_approval, open_outside_sandbox
from tests.support.running_service import serving_operator
from tests.support.timeouts import PATIENCE_S
from tests.support.world import World
from tests.web.visiting import screen

LOOP = "session"
pytestmark = [pytest.mark.asyncio(loop_scope=LOOP), pytest.mark.full]
HASH = bytes([7] * 32)
WHY = "ticket 7"


@dataclass
class Subjects:
    """The objects on the pages: a payment, a pending refund, a case and a dead event."""

    world: World
    payment: str
    refund: str
    case: str
    event: UUID
    events_payment: str


@dataclass
class Operator:
    """An operator's browser, and its errors."""

    page: Page
    base: str
    errors: list[str] = field(default_factory=list[str])

    async def open(self, path: str) -> None:
        await self.page.goto(self.base + path)

    async def sign_in(self, token: str) -> None:
        await self.open("/sign-in")
        await self.page.fill("#token", token)
        await self.page.click("main button")
        await self.page.wait_for_selector("nav[aria-label=Pages]")

    async def run(self, action: str, **fields: object) -> str:
        """Open an operation's prefilled form, enter a reason, and confirm; return the page."""
        await self.open(f"/operations/{action.replace('.', '/')}?{urlencode(fields)}")
        return await self.send()

    async def send(self) -> str:
        """Send the open form, and confirm it if requested."""
        await self.page.fill("#why", WHY)
        await self.page.click("main .actions button:first-child")
        await self.page.wait_for_selector("h1")
        if await self.page.locator("button[value=confirmed]").count():
            await self.page.click("button[value=confirmed]")
        await self.page.wait_for_selector("[role=status]")
        return await self.page.inner_text("main")

    def record_message(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)


@asynccontextmanager
async def operating(browser: Browser, base: str, token: str) -> AsyncIterator[Operator]:
    context: BrowserContext = await screen(browser)
    operator = Operator(await context.new_page(), base)
    operator.page.on("console", operator.record_message)
    await operator.sign_in(token)
    yield operator
    await context.close()
    assert operator.errors == []


@fixture(loop_scope=LOOP)
async def receiver(world: World) -> AsyncIterator[Receiver]:
    """The merchant's server."""
    receiver = Receiver()
    receiver.secret = world.callback_secret
    await receiver.start()
    yield receiver
    await receiver.stop()


@fixture(loop_scope=LOOP)
async def console(world: World) -> AsyncIterator[str]:
    """Serve the console of an installation outside the sandbox; return its URL."""
    async with (
        open_outside_sandbox(world) as service,
        serving_operator(service.settings, service) as base,
    ):
        yield base


@fixture(loop_scope=LOOP)
async def subjects(world: World, receiver: Receiver) -> Subjects:
    """Create an object of each kind that the console manages."""
    url = receiver.url
    await world.rows(
        "UPDATE merchant SET callback_url = $1, allow_http = true WHERE id = $2",
        url,
        world.merchant_id,
    )
    methods = await offer_tokens(world)
    payment, session = await bill(world, methods["NATIVED"])
    async with world.database.transaction() as tx:
        await pending_transfers.add_posted_hash(tx, session.id, HASH, "pay")
    _, refund, _ = await add_refunds_for_approval(world)
    underpaid = await world.create()
    session_to_report = (await world.select(underpaid)).session
    await world.report(underpaid, session_to_report.id, captured(1_000, reference="short"))
    [case] = await world.rows("SELECT id FROM money_case WHERE payment_id = $1", underpaid.id)
    cancelled = await world.create(payer_uid="ann")
    async with world.database.transaction() as tx:
        await cancel_by_merchant(tx, cancelled, None)
    [event] = await world.rows("SELECT id FROM event WHERE payment_id = $1", cancelled.id)
    await outbox_store.record(world.database, [_refused_attempt(world, event["id"], url)])
    return Subjects(
        world=world,
        payment=ids.format_id(ids.PAYMENT, payment.id),
        refund=ids.format_id(ids.REFUND, refund),
        case=ids.format_id(ids.CASE, case["id"]),
        event=event["id"],
        events_payment=ids.format_id(ids.PAYMENT, cancelled.id),
    )


def _refused_attempt(world: World, event_id: UUID, url: str) -> AttemptRecord:
    return AttemptRecord(
        id=world.id_generator.new_id(),
        event_id=event_id,
        number=1,
        url=url,
        outcome="http_error",
        status=500,
        detail="HTTP 500",
        answer='{"error":"try later"}',
        duration_ms=12,
        delivered=False,
        next_wait_s=None,
    )


@asynccontextmanager
async def working(service: Service) -> AsyncIterator[None]:
    """Run a worker's loops during the block."""
    stop = asyncio.Event()
    loops = asyncio.create_task(run_loops(service, stop))
    try:
        yield
    finally:
        stop.set()
        await loops


async def test_an_operator_finds_a_payment_decides_a_case_and_resends_an_event(
    browser: Browser, console: str, subjects: Subjects, receiver: Receiver
) -> None:
    token = await subjects.world.operator_token("Alan")
    async with operating(browser, console, token) as alan:
        await alan.open("/payments")
        await alan.page.fill("#text", f"0x{HASH.hex()}")
        await alan.page.press("#text", "Enter")
        await alan.page.wait_for_url(f"**/payments/{subjects.payment}")
        assert "Transaction submitted" in await alan.page.inner_text(".story")

        await alan.open("/refunds?step=approval")
        await alan.page.click(f"text={subjects.refund}")
        await alan.page.get_by_role("link", name="Approve refund", exact=True).click()
        await alan.send()
        await alan.open(f"/refunds/{subjects.refund}")
        assert "Alan" in await alan.page.inner_text("dl.record")

        await alan.open("/cases")
        await alan.page.click("tbody >> text=AMOUNT_MISMATCH")
        await alan.page.click("main >> text=Dismiss")
        await alan.send()
        await alan.open(f"/cases/{subjects.case}")
        assert "DISMISSED" in await alan.page.inner_text("h1")

        await alan.open("/webhooks/events?state=dead")
        await alan.page.click("tbody >> text=payment.cancelled")
        await alan.page.click("text=Resend event")
        await alan.send()
        async with working(subjects.world.service), asyncio.timeout(PATIENCE_S):
            while not any(
                delivery.webhook_id == str(subjects.event) for delivery in receiver.deliveries
            ):
                await asyncio.sleep(0.05)
            while "delivered" not in await _attempts(alan, subjects.event):
                await asyncio.sleep(0.05)


async def _attempts(operator: Operator, event_id: UUID) -> str:
    await operator.open(f"/webhooks/events/{event_id}")
    return await operator.page.inner_text("[aria-label=Attempts]")


async def test_a_merchant_is_created_and_activated(
    browser: Browser, console: str, world: World
) -> None:
    tokens = [await world.operator_token(name) for name in ("Ada", "Alan")]
    async with (
        operating(browser, console, tokens[0]) as ada,
        operating(browser, console, tokens[1]) as alan,
    ):
        await ada.open("/merchants")
        await ada.page.click("text=Create merchant")
        await ada.page.fill("#name", "Ferry Books")
        assert "needs approval" in await ada.send()
        await alan.open("/approvals")
        await alan.page.click("main tbody a >> nth=0")
        await alan.page.fill("#note", "agreed")
        await alan.page.get_by_role("button", name="Approve").click()
        await alan.page.wait_for_selector("text=shown only once")
        [row] = await world.rows("SELECT id FROM merchant WHERE name = 'Ferry Books'")
        merchant_id = row["id"]
        await ada.open(f"/merchants/{merchant_id}")
        assert "NEW" in await ada.page.inner_text("h1")
        for action, fields in (
            (
                "method.add",
                {
                    "account_id": world.account_id,
                    "kind": "card",
                    "label": "Card",
                    "currencies": "THB",
                },
            ),
            (
                "merchant.request",
                {"countries": "TH", "currencies": "THB", "contract": "c/7", "kyc": "k/7"},
            ),
            ("merchant.apply", {}),
            ("merchant.validate", {}),
            ("merchant.activate", {}),
        ):
            await ada.run(action, merchant_id=merchant_id, **fields)
        await ada.open(f"/merchants/{merchant_id}")
        assert "ACTIVE" in await ada.page.inner_text("h1")
        assert await ada.page.locator(".steps > li.done").count() >= 6


async def test_changes_are_hidden_from_a_viewer_and_rejected(
    browser: Browser, console: str, subjects: Subjects
) -> None:
    world = subjects.world
    token = await world.operator_token("Vera", Role.VIEWER)
    hidden_actions = {
        f"/refunds/{subjects.refund}": ("Approve", "Reject"),
        f"/cases/{subjects.case}": ("Dismiss", "Refund"),
        f"/webhooks/events/{subjects.event}": ("Resend event",),
        "/merchants": ("Create merchant",),
        "/gateways": ("Disable",),
        "/chains": ("Resume",),
    }
    rejected_operations = {
        "refund/approve": {"refund_id": subjects.refund},
        "case/resolve": {"case_id": subjects.case},
        "webhooks/replay": {"event_id": subjects.event},
        "merchant/create": {"name": "Ferry Books"},
        "merchant/activate": {"merchant_id": world.merchant_id},
        "provider/disable": {"name": "fake"},
        "account/disable": {"account_id": world.account_id},
        "chain/resume": {"chain": "polygon"},
    }
    async with operating(browser, console, token) as vera:
        for path, names in hidden_actions.items():
            await vera.open(path)
            assert await vera.page.locator("h1").count() == 1, path
            for name in names:
                control = vera.page.locator("main a, main button", has_text=name)
                assert await control.count() == 0, (path, name)
        csrf = await vera.page.locator("[name=csrf]").first.get_attribute("value") or ""
        for page, fields in rejected_operations.items():
            answer = await vera.page.goto(f"{console}/operations/{page}?{urlencode(fields)}")
            assert answer is not None
            assert answer.status == 403, page
            assert "Vera has the viewer role" in await vera.page.inner_text("main"), page
            form = {"csrf": csrf, "why": WHY, "step": "confirmed"} | {
                name: str(value) for name, value in fields.items()
            }
            response = await vera.page.request.post(
                f"{console}/operations/{page}", form=form, headers={"Origin": console}
            )
            assert response.status == 403, page
            assert "Vera has the viewer role" in await response.text(), page
        vera.errors = [error for error in vera.errors if "403" not in error]
