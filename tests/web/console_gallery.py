"""The operator console with data on every page, and the steps that open each page."""

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
from tests.support.serving import serving_operator
from tests.support.stage import HOOKS, Stage, make_stage, open_outside_sandbox
from tests.support.world import World, make_world
from tests.web.gallery import gallery_settings, own_database
from tests.web.long_texts import lengthen


@dataclass(frozen=True)
class ConsolePage:
    """A page of the console: its path, the entered values, and the pressed buttons.

    Placeholders such as `{merchant}` stand for values of the stage.
    """

    path: str
    fill: Mapping[str, str] = field(default_factory=dict[str, str])
    press: tuple[str, ...] = ()
    operator: str | None = "Ada"  # whose page it is; None: nobody is signed in
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
#: Every page and state, by name; a new page of the console has its line here.
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
    """A running console, and the operators who may sign in."""

    base: str
    stage: Stage

    async def sign_in(self, context: BrowserContext, operator: str) -> None:
        """Sign in as a person. The page stays open, so that others share its process."""
        page = await context.new_page()
        await page.goto(f"{self.base}/sign-in")
        await page.fill("[name=token]", self.stage.tokens[operator])
        await page.press("[name=token]", "Enter")
        await page.wait_for_url(f"{self.base}/*")
        await page.wait_for_selector("header nav")

    async def source(self, context: BrowserContext, name: str) -> str:
        """Return a page's HTML, rendered by a browser only if it needs input."""
        wanted = CONSOLE_PAGES[name]
        if wanted.press:
            page, html = await self.show(context, name)
            await page.close()
            return html
        answer = await context.request.get(self.base + wanted.path.format(**self.stage.known))
        assert answer.status == wanted.status, f"{name}: {answer.status}"
        return await answer.text()

    async def show(self, context: BrowserContext, name: str) -> tuple[Page, str]:
        """Open a page, and enter its values and press its buttons; return it and its HTML.

        Its operator must be signed in.
        """
        wanted = CONSOLE_PAGES[name]
        page = await context.new_page()
        answer = await page.goto(self.base + wanted.path.format(**self.stage.known))
        for field_name, value in wanted.fill.items():
            await page.fill(f"[name='{field_name}']", value)
        for words in wanted.press:
            async with page.expect_navigation() as pressed:
                await page.get_by_role("button", name=words, exact=True).click()
            answer = await pressed.value
        assert answer is not None
        assert answer.status == wanted.status, f"{name}: {answer.status}"
        return page, await answer.text()


@asynccontextmanager
async def open_console(
    server_url: str, *, has_long_texts: bool = False
) -> AsyncIterator[ConsoleGallery]:
    """Create an installation with some of everything, and serve its console."""
    async with own_database(server_url) as url:
        settings = gallery_settings(url, "http://pay.test").model_copy(update=_PROVIDER)
        gateway = FakeGateway()
        simulator = SimulatorGateway(GatewayHttpClient(timeout_s=5, response_bytes_max=1_024))
        service = await open_service(settings, {"fake": gateway, "simulator": simulator})
        world = await make_world(service, gateway)
        async with open_outside_sandbox(world, simulator=simulator) as production:
            stage = await make_stage(world, production)
            stage.tokens["Sam"] = await world.operator_token("Sam", Role.SUPPORT)
            await _fill(world, stage)
            if has_long_texts:
                await lengthen(world)
            await _count(world)
            async with serving_operator(settings, production) as base:
                yield ConsoleGallery(base, stage)
        await service.close()


async def _fill(world: World, stage: Stage) -> None:
    """Open the circuit breaker of an endpoint, and dispute a payment as a buyer."""
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


async def _count(world: World) -> None:
    """Run a worker's frequent steps: count figures, and store gateway requests."""
    await world.service.accounts.log.flush()
    await world.move_clock(round(hourly_figures.SETTLING_DELAY_S) + 1)
    while await hourly_figures.count_outcomes(world.database):
        pass
