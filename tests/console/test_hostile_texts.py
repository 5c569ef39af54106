"""Text from buyers, merchants, gateways and operators is never interpreted as markup.

The test replaces text in the database with hostile text wherever the constraints allow it. It then
parses every page of the console, the portal and the checkout as a browser would.
"""

import json
from urllib.parse import quote, urlencode

import pytest
from starlette.routing import Route

from payintent.console.routes import CONSOLE_ROUTES
from payintent.core.ids import PAYMENT_LINK, format_id
from payintent.members.model import MemberRole
from payintent.operations import OPERATIONS
from payintent.operators.fields import list_fields
from payintent.payment_links.model import PaymentLink
from payintent.portal.routes import PORTAL_ROUTES
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.console.operator_browser import Visitor, without_breaks
from tests.console.test_operations import is_read, make_form, page_of
from tests.payment_links.link_setup import make_link
from tests.portal.member_browser import Person, member
from tests.support.hostile import ADDRESS, MARKUP, columns_on, find_harm, make_hostile
from tests.support.operation_examples import Stage
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

#: Columns with text from people and gateways that must appear on at least one page.
SHOWN = {
    *("payment.payer_uid", "payment.metadata", "session.label", "session.reference"),
    *("payment_method.label", "capture.reference", "gateway_call.detail", "gateway_outage.detail"),
    *("merchant.name", "merchant.callback_url", "merchant.support_url", "merchant.return_url"),
    *("merchant.logo_url", "merchant.terms_url", "merchant.contract", "merchant.kyc"),
    *("attempt.url", "attempt.detail", "attempt.answer", "event.body", "endpoint_outage.detail"),
    *("refund.reason", "refund.note", "refund.requested_by", "refund.destination"),
    *("money_case.note", "money_case.subject", "dispute.reference", "dispute.reason"),
    *("audit.who", "audit.why", "audit.details", "proposal.why", "proposal.changes"),
    *("operator_token.name", "console_session.browser", "console_session.address"),
    *("provider_account.name", "provider_account.base_url", "fraud_rule.value", "api_key.name"),
    *("member.email", "payout.reference", "gateway_payout.reference", "chain_cursor.halted"),
    *("reconciliation_run.name", "reconciliation_run.problem", "api_call.request_id"),
    *("payment_link.title", "payment_link.description"),
}
_ROWS = (
    """
    INSERT INTO attempt
    SELECT gen_random_uuid(), id, 1, 'refused', 500, 'x', 'x', 12, clock(), 'x' FROM event
    """,
    """
    INSERT INTO dispute
    SELECT gen_random_uuid(), $1, 'dp_1', capture.id, money_case.id, 'open', 'withdrawn', 1000,
        'THB', 'x', clock(), 0
    FROM money_case, capture
    LIMIT 1
    """,
    """
    INSERT INTO gateway_call
    SELECT clock(), gen_random_uuid(), $1, 'create_session', payment_id, id, NULL, 'rejected',
        'x', 1
    FROM session
    """,
    """
    INSERT INTO gateway_outage
    VALUES ($1, 'sessions', 1, clock(), clock() + interval '1 h', clock(), 'x')
    """,
    """
    INSERT INTO endpoint_outage
    SELECT id, clock(), clock() + interval '1 h', 1, 'x' FROM merchant WHERE $1::bigint > 0
    """,
    """
    INSERT INTO api_call
    SELECT clock(), gen_random_uuid(), id, 'GET', '/v1/catalog', 400, 'x', 'x', 1
    FROM merchant WHERE $1::bigint > 0
    """,
    """
    INSERT INTO chain_cursor (chain, block, halted)
    SELECT 'bsc', 7, 'x' WHERE $1::bigint > 0
    ON CONFLICT (chain) DO UPDATE SET halted = 'x'
    """,
)
#: The buyer's next step, as reported by a gateway.
_SET_NEXT_ACTIONS = "UPDATE session SET next_action = $1::jsonb WHERE next_action IS NOT NULL"
_QUERY = urlencode({"q": MARKUP, "who": MARKUP, "payer_uid": MARKUP, "next": ADDRESS})
_NO_PAGES = ("/static/", "/merchant/static/", "/today/events", "/sign-in/oidc", "/audit/export")

#: The test changed the URL of this account, so its credentials can no longer be decrypted.
_UNREADABLE = {"/operations/account/check?account_id=2"}


@pytest.fixture
def operated(production: Service) -> Service:
    return production


@pytest.mark.parametrize("text", [MARKUP, ADDRESS])
async def test_user_text_never_becomes_markup_scripts_or_links(
    operator: Api, api: Api, stage: Stage, settings: Settings, text: str
) -> None:
    ada = Visitor(operator)
    await ada.sign_in(stage.tokens["Ada"])
    people = {role: await member(api, role) for role in MemberRole}
    for rows in _ROWS:
        await stage.world.rows(rows, *([stage.world.account_id] if "$1" in rows else []))
    await stage.world.rows(
        _SET_NEXT_ACTIONS, json.dumps({"type": "redirect", "redirect": {"url": text}})
    )
    link = await make_link(stage.world, description="A day by the sea")
    changed_columns = await make_hostile(settings.database_url, text)
    assert changed_columns >= SHOWN
    pages: dict[str, Answer] = {}
    for address in [*_list_console_addresses(stage), *_list_operation_addresses(stage, text)]:
        pages[address] = await ada.get(address)
    for role, person in people.items():
        portal_pages = await _open_portal_pages(person, stage, link)
        pages |= {f"{role} {address}": page for address, page in portal_pages.items()}
    pages |= await _open_checkout_pages(api)
    pages["link"] = await api.send("GET", f"/c/link/{link.token}")
    pages = {
        address: page
        for address, page in pages.items()
        if page.headers.get("Content-Type", "text/html").startswith("text/html")
    }
    problems = {
        address: find_harm(page.body.decode()) or page.status
        for address, page in pages.items()
        if (page.status >= 500 and address not in _UNREADABLE) or find_harm(page.body.decode())
    }
    assert problems == {}
    shown_columns = set[str]().union(
        *(columns_on(without_breaks(page.body.decode())) for page in pages.values())
    )
    assert SHOWN - shown_columns == set()


def _list_console_addresses(stage: Stage) -> list[str]:
    ids = {
        "payment_id": stage.known["payment"],
        "case_id": stage.known["case"],
        "refund_id": stage.known["refund"],
        "event_id": stage.known["event"],
        "merchant_id": stage.world.merchant_id,
        "approval_id": stage.known["approval"],
    }
    return [
        route.path.format_map(ids) + query
        for route in CONSOLE_ROUTES
        if isinstance(route, Route) and "GET" in (route.methods or ())
        if not route.path.startswith(_NO_PAGES) and "{verb}" not in route.path
        if "{extension}" not in route.path
        for query in ("", "?status=ALL", f"?{_QUERY}")
    ]


def _list_operation_addresses(stage: Stage, text: str) -> list[str]:
    """Return the URLs of all operations: results of reads, and forms with hostile values."""
    reads = [
        f"{page_of(action)}?{urlencode(make_form(stage.fields(action)))}"
        for action in OPERATIONS
        if is_read(action)
    ]
    forms = [
        f"{page_of(action)}?{urlencode({field.name: text for field in list_fields(kind)})}"
        for action, kind in OPERATIONS.items()
    ]
    return reads + forms


async def _open_portal_pages(person: Person, stage: Stage, link: PaymentLink) -> dict[str, Answer]:
    ids = {
        "link_id": format_id(PAYMENT_LINK, link.id),
        "payment_id": stage.known["payment"],
        "event_id": stage.known["event"],
        "statement_id": stage.known["statement"],
        "token": quote(MARKUP, safe=""),
    }
    return {
        f"{route.path}{query}": await person.get(route.path.format_map(ids) + query)
        for route in PORTAL_ROUTES
        if isinstance(route, Route) and "GET" in (route.methods or ())
        if not route.path.startswith(_NO_PAGES) and not route.path.endswith((".csv", ".pdf"))
        for query in ("", f"?{_QUERY}")
    }


async def _open_checkout_pages(api: Api) -> dict[str, Answer]:
    """Open the checkout of every payment."""
    rows = await api.world.rows("SELECT checkout_id FROM payment")
    paths = [
        f"/c/{row['checkout_id']}{rest}"
        for row in rows
        for rest in ("", "/receipt", f"?{urlencode({'lang': MARKUP, 'country': MARKUP})}")
    ]
    return {path: await api.send("GET", path) for path in paths}
