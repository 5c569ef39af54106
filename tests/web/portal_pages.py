"""Create data for every page of the merchant portal, and sign in."""

import time
from dataclasses import dataclass
from uuid import uuid4

from playwright.async_api import BrowserContext, Page

from payintent.core import ids
from payintent.http.application import ROUTE
from payintent.http.responses import MERCHANT_ID
from payintent.members.model import MemberRole
from payintent.members.operations import InviteMember
from payintent.merchants.call_log import CallLog, CallLogWriter
from payintent.refunds.create import CreateRefundRequest
from payintent.webhooks import outbox_store
from payintent.webhooks.outbox_store import AttemptRecord
from tests.payment_links.link_setup import make_link
from tests.portal.arrange import close_a_day
from tests.refunds.requests import process_refunds
from tests.support.fakes import captured
from tests.support.world import World

_ANSWER = '{"error": "database is locked", "trace": "' + "orders/handle.py:17 " * 8 + '"}'
#: The paths of the portal's pages after `/merchant/`, by name.
PAGES = {
    "overview": "overview",
    "payments": "payments",
    "found-nothing": "payments?q=nothing-like-this",
    "bad-filter": "payments?created_from=yesterday",
    "payment": "payments/{payment}",
    "refunds": "refunds",
    "payment-links": "payment-links",
    "payment-link": "payment-links/{link}",
    "cases": "cases",
    "statements": "statements",
    "statement": "statements/{statement}",
    "events": "events",
    "event": "events/{event}",
    "settings": "settings",
    "keys": "keys",
    "catalog": "catalog?country=TH",
    "calls": "calls",
    "access": "access",
    "not-found": "payments/x",
}
#: Pages that only finance can view completely.
FINANCE_PAGES = {"payment", "refunds", "statements", "statement"}


@dataclass(frozen=True)
class PortalScene:
    """A merchant's portal, and the data on its pages."""

    world: World
    base: str
    payment: str
    event: str
    statement: str
    link: str

    def address(self, name: str) -> str:
        path = PAGES[name].format(
            payment=self.payment, event=self.event, statement=self.statement, link=self.link
        )
        return f"{self.base}/{path}"


async def arrange_portal(world: World) -> PortalScene:
    """Create a payment with captures, refunds and delivery attempts, and further payments."""
    for number in range(3):
        await world.create(
            payer_uid=f"buyer-{number}", metadata=f"""{{"order_id":"A-100{number}"}}"""
        )
    payment = await world.create(
        payer_uid="buyer-17",
        metadata='{"order_id":"A-1009","product":{"name":"A river atlas","quantity":2}}',
    )
    selected = await world.select(payment)
    total = selected.session.quote.total_minor
    await world.report(payment, selected.session.id, captured(total, reference=f"r-{payment.id}"))
    await world.report(payment, selected.session.id, captured(total, reference=f"s-{payment.id}"))
    refund = CreateRefundRequest(
        merchant_id=world.merchant_id,
        payment_id=payment.id,
        key=uuid4(),
        member="fin@nimbus.example",
        amount="90.00",
        reason="The cover was torn",
    )
    await world.service.refund_creator.create(refund)
    await process_refunds(world)  # then the payment has the longest status, PARTIALLY_REFUNDED
    [row] = await world.rows("SELECT id FROM event WHERE payment_id = $1", payment.id)
    for number in (1, 2):
        attempt = AttemptRecord(
            id=uuid4(),
            event_id=row["id"],
            number=number,
            url="https://shop.nimbus.example/hooks/payments",
            outcome="refused" if number == 1 else "failed",
            status=500 if number == 1 else None,
            detail="HTTP 500" if number == 1 else "connection refused",
            answer=_ANSWER if number == 1 else "",
            duration_ms=31 if number == 1 else 3,
            delivered=False,
            next_wait_s=None,
        )
        await outbox_store.record(world.database, [attempt])
    await _record_calls(world)
    base = world.service.settings.portal_address
    statement = await close_a_day(world)
    return PortalScene(
        world=world,
        base=base,
        payment=ids.format_id(ids.PAYMENT, payment.id),
        event=str(row["id"]),
        statement=statement,
        link=await _create_links(world),
    )


async def _create_links(world: World) -> str:
    """Create links of each kind; return the id of a link with all details."""
    await make_link(world, title="Donation", amount=None, amount_min="20", amount_max="500")
    link = await make_link(
        world,
        title="A weekend on the river",
        description="Two days with a guide, a boat and all meals",
        order_id="A-1009",
        max_uses=12,
        expires_at="2099-12-31T00:00:00Z",
    )
    return ids.format_id(ids.PAYMENT_LINK, link.id)


async def sign_in_by_link(
    context: BrowserContext, scene: PortalScene, role: MemberRole, email: str
) -> Page:
    """Invite a member, and accept the invitation in this browser."""
    invitation = InviteMember(merchant_id=scene.world.merchant_id, email=email, role=role)
    page = await context.new_page()
    await page.goto((await scene.world.perform(invitation)).link)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_selector("header")
    return page


async def _record_calls(world: World) -> None:
    log = CallLog()
    for method, path, status, code in (
        ("POST", "/v1/payments", 201, None),
        ("GET", "/v1/payments/{payment_id}", 404, "NOT_FOUND"),
    ):
        scope = {"method": method, ROUTE: path, MERCHANT_ID: world.merchant_id}
        if code is not None:
            scope["payintent.error_code"] = code
        log.record(scope, status, uuid4().hex.encode(), time.monotonic() - 0.004)
    await CallLogWriter(log, world.database).flush()
