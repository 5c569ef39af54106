"""Serve the operator console with data on every page, and open each page."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from playwright.async_api import BrowserContext, Page
from pydantic import SecretStr

from payintent.core.access import Role
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.simulator import SimulatorGateway
from payintent.overview import hourly_figures
from payintent.service import open_service
from payintent.webhooks import endpoints_store as endpoint_store
from payintent.webhooks import outbox_store
from payintent.webhooks.model import CircuitReport
from payintent.webhooks.outbox_store import AttemptRecord
from tests.support.fakes import FakeGateway, captured
from tests.support.operation_examples import HOOKS, Stage, make_stage, open_outside_sandbox
from tests.support.running_service import serving_operator
from tests.support.world import World, make_world
from tests.web.gallery import gallery_settings, own_database
from tests.web.long_texts import lengthen


@dataclass(frozen=True)
class ConsolePage:
    """A console page: its path, the values to enter, and the buttons to press.

    Placeholders such as `{merchant}` are replaced with values of the stage.
    """

    path: str
    fill: Mapping[str, str] = field(default_factory=dict[str, str])
    press: tuple[str, ...] = ()
    operator: str | None = "Ada"  # None if nobody is signed in
    status: int = 200


_PROVIDER = {
    "oidc_issuer": "https://login.example.com/realms/staff",
    "oidc_client_id": "payintent-console",
    "oidc_client_secret": SecretStr("a-secret-of-the-provider"),
    "oidc_roles": "payments-admins=admin",
}
_ATTEMPTS = (
    ("http_error", 500, '{"error":"database is locked"}', 84),
    ("http_error", 503, "try later", 41),
    ("timeout", None, "", 10_004),
)
#: Every page and state by name. Add a line if the console has a new page.
CONSOLE_PAGES: dict[str, ConsolePage] = {
    "sign-in": ConsolePage("/sign-in", operator=None),
    "sign-in-refused": ConsolePage(
        "/sign-in", {"token": "op_x"}, ("Sign in",), operator=None, status=401
    ),
    "sessions": ConsolePage("/sessions"),
    "not-found": ConsolePage("/operations/tax/burn", status=404),
    "today": ConsolePage("/"),
    "today-month": ConsolePage("/?period=30d"),
    "gateways": ConsolePage("/gateways"),
    "gateways-support": ConsolePage("/gateways", operator="Sam"),
    "chains": ConsolePage("/chains"),
    "operations": ConsolePage("/operations"),
    "operation-list": ConsolePage("/operations/payment/list"),
    "operation-record": ConsolePage("/operations/merchant/show?merchant_id={merchant}"),
    "operation-nested": ConsolePage("/operations/payment/show?payment_id={payment}"),
    "operation-form": ConsolePage("/operations/account/add"),
    "operation-choices": ConsolePage("/operations/merchant/profile?merchant_id={merchant}"),
    "operation-refused": ConsolePage(
        "/operations/tax/set",
        {"country": "Thailand", "rate": "0.07", "why": "the law has changed"},
        ("Submit",),
        status=400,
    ),
    "operation-dry-run": ConsolePage(
        "/operations/webhooks/replay-missed?merchant_id={old_merchant}", {}, ("Dry run",)
    ),
    "operation-confirm": ConsolePage(
        "/operations/merchant/rotate-secret?merchant_id={merchant}",
        {"why": "it was in a log file"},
        ("Continue",),
    ),
    "operation-proposed": ConsolePage(
        "/operations/operator/issue",
        {"name": "Grace", "why": "Grace begins on Monday"},
        ("Submit",),
        status=202,
    ),
    "operation-done": ConsolePage(
        "/operations/merchant/profile",
        {"merchant_id": "1", "accent_colour": "#2f6f4f", "why": "the shop has a new colour"},
        ("Submit",),
    ),
    "approvals": ConsolePage("/approvals"),
    "approvals-none": ConsolePage("/approvals?status=LAPSED"),
    "approval": ConsolePage("/approvals/{approval}", operator="Alan"),
    "approval-own": ConsolePage("/approvals/{approval}", operator="Bob"),
    "approval-refund": ConsolePage("/approvals/{refund}"),
    "payments": ConsolePage("/payments"),
    "payments-filtered": ConsolePage("/payments?kind=card&status=PAID&since=2026-01-01T00:00"),
    "payments-found": ConsolePage("/payments?text=buyer-1"),
    "payments-none": ConsolePage("/payments?text=nothing"),
    "payments-refused": ConsolePage("/payments?currency=XXX", status=400),
    "payment": ConsolePage("/payments/{payment}"),
    "payment-cancelled": ConsolePage("/payments/{pending}?of=payment"),
    "payment-on-chain": ConsolePage("/payments/{stranded}"),
    "cases": ConsolePage("/cases"),
    "cases-none": ConsolePage("/cases?status=REFUNDED"),
    "case": ConsolePage("/cases/{case}"),
    "refunds": ConsolePage("/refunds"),
    "refund": ConsolePage("/refunds/{refund}"),
    "disputes": ConsolePage("/disputes"),
    "webhooks": ConsolePage("/webhooks"),
    "events": ConsolePage("/webhooks/events"),
    "event": ConsolePage("/webhooks/events/{event}"),
    "merchants": ConsolePage("/merchants"),
    "merchant": ConsolePage("/merchants/{merchant}"),
    "merchant-active": ConsolePage("/merchants/{old_merchant}"),
    "audit": ConsolePage("/audit"),
    "audit-none": ConsolePage("/audit?who=nobody"),
}


@dataclass(frozen=True)
class ConsoleGallery:
    """A running console with operators and data."""

    base: str
    stage: Stage

    async def sign_in(self, context: BrowserContext, operator: str) -> None:
        """Sign in as an operator. The page stays open so that later pages share its process."""
        page = await context.new_page()
        await page.goto(f"{self.base}/sign-in")
        await page.fill("[name=token]", self.stage.tokens[operator])
        await page.press("[name=token]", "Enter")
        await page.wait_for_url(f"{self.base}/*")
        await page.wait_for_selector("header nav")

    async def source(self, context: BrowserContext, name: str) -> str:
        """Return a page's HTML. A browser is used only if the page needs input."""
        console_page = CONSOLE_PAGES[name]
        if console_page.press:
            page, html = await self.show(context, name)
            await page.close()
            return html
        answer = await context.request.get(self.base + console_page.path.format(**self.stage.known))
        assert answer.status == console_page.status, f"{name}: {answer.status}"
        return await answer.text()

    async def show(self, context: BrowserContext, name: str) -> tuple[Page, str]:
        """Open a page, enter its values and press its buttons; return the page and its HTML.

        The page's operator must be signed in.
        """
        console_page = CONSOLE_PAGES[name]
        page = await context.new_page()
        answer = await page.goto(self.base + console_page.path.format(**self.stage.known))
        for field_name, value in console_page.fill.items():
            await page.fill(f"[name='{field_name}']", value)
        for words in console_page.press:
            async with page.expect_navigation() as navigation:
                await page.get_by_role("button", name=words, exact=True).click()
            answer = await navigation.value
        assert answer is not None
        assert answer.status == console_page.status, f"{name}: {answer.status}"
        return page, await answer.text()


@asynccontextmanager
async def open_console(
    server_url: str, *, has_long_texts: bool = False
) -> AsyncIterator[ConsoleGallery]:
    """Create an installation with data of every kind, and serve its console."""
    async with own_database(server_url) as url:
        settings = gallery_settings(url, "http://pay.test").model_copy(update=_PROVIDER)
        gateway = FakeGateway()
        simulator = SimulatorGateway(GatewayHttpClient(timeout_s=5, response_bytes_max=1_024))
        service = await open_service(settings, {"fake": gateway, "simulator": simulator})
        world = await make_world(service, gateway)
        async with open_outside_sandbox(world, simulator=simulator) as production:
            stage = await make_stage(world, production)
            stage.tokens["Sam"] = await world.operator_token("Sam", Role.SUPPORT)
            await _create_data(world, stage)
            if has_long_texts:
                await lengthen(world)
            await _count_figures(world)
            async with serving_operator(settings, production) as base:
                yield ConsoleGallery(base, stage)
        await service.close()


async def _create_data(world: World, stage: Stage) -> None:
    """Add failed delivery attempts, an open circuit breaker, and a dispute."""
    database, event_id = world.database, UUID(stage.known["event"])
    for number, (outcome, status, answer, took_ms) in enumerate(_ATTEMPTS, 1):
        attempt = AttemptRecord(
            id=world.id_generator.new_id(),
            event_id=event_id,
            number=number,
            url=HOOKS,
            outcome=outcome,
            status=status,
            detail=f"HTTP {status}" if status else "no answer within 10 s",
            answer=answer,
            duration_ms=took_ms,
            delivered=False,
            next_wait_s=None,
        )
        await outbox_store.record(database, [attempt])
    report = CircuitReport(
        merchant_id=world.merchant_id, open_s=300, detail="timeout: no answer within 10 s"
    )
    await endpoint_store.open_circuit(database, report)
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(1_000, reference="disputed"))
    await world.rows(
        """
        INSERT INTO dispute (id, account_id, reference, capture_id, case_id, state, funds,
            amount_minor, currency, held_minor, respond_by)
        SELECT gen_random_uuid(), $1, 'dp_7', c.capture_id, c.id, 'open', 'withdrawn', 1000,
            'THB', 0, clock() + interval '5 days'
        FROM money_case c
        WHERE c.payment_id = $2
        """,
        world.account_id,
        payment.id,
    )


async def _count_figures(world: World) -> None:
    """Store the gateway requests and count the hourly figures, as a worker does."""
    await world.service.accounts.log.flush()
    await world.move_clock(round(hourly_figures.SETTLING_DELAY_S) + 1)
    while await hourly_figures.count_outcomes(world.database):
        pass
