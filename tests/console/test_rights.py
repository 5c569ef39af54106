"""Every console route is tested without a session, with forged forms, and with each role.

The routes and operations come from the console's tables, so that new routes are tested too.
"""

import html
import re
from collections.abc import AsyncIterator

import pytest
from pytest_asyncio import fixture
from starlette.routing import Route

from payintent.console.rendering import NAVIGATION
from payintent.console.routes import CONSOLE_ROUTES
from payintent.core.access import Role
from payintent.operations import OPERATIONS
from payintent.operators.operation import ChangeOperation
from payintent.service import Service
from tests.console.operator_browser import Visitor
from tests.console.test_operations import make_form, page_of
from tests.support.contents import contents
from tests.support.operation_examples import Stage
from tests.support.world import Api, World

#: Routes without a session, with the reason.
PUBLIC_ROUTES = {
    ("GET", "/sign-in"): "the sign-in page",
    ("POST", "/sign-in"): "needs a token",
    ("GET", "/sign-in/oidc"): "redirects to the provider",
    ("GET", "/sign-in/oidc/callback"): "needs a response from the provider",
    ("GET", "/static/{mark}/{name}"): "public files",
}
PROTECTED_ROUTES = [
    (method, route.path)
    for route in CONSOLE_ROUTES
    if isinstance(route, Route)
    for method in (route.methods or set()) - {"HEAD"}
    if (method, route.path) not in PUBLIC_ROUTES
]
PAGES = [path for method, path in PROTECTED_ROUTES if method == "GET"]
_OPERATION = "/operations/{subject}/{verb}"
_DECISION = "/approvals/{approval_id}/{decision}"
#: Routes that do not return a page with links.
_NO_PAGES = ("/today/", "/audit/export", "/operations/")
#: Tables with initial rows, and tables that the operator's session needs.
_PRESERVED_TABLES = {
    *("chain", "chain_token", "configuration_version", "figure_mark", "provider", "restriction"),
    *("console_session", "operator_token", "schema_migration"),
}
_FOREIGN_ORIGIN = "https://evil.example"
_FORM_TARGET = re.compile(r'(?:action|formaction)="([^"]*)"')
_OPERATION_LINK = re.compile(r'href="(/operations/[^"?]+/[^"?]+)')
#: Tables that record the time of last use, which every request updates.
_USAGE_TABLES = {"console_session", "operator_token"}


@pytest.fixture
def operated(production: Service) -> Service:
    return production


@fixture
async def people(operator: Api, stage: Stage) -> AsyncIterator[dict[Role, Visitor]]:
    """An operator for each role."""
    visitors = {role: Visitor(operator) for role in Role}
    for role, visitor in visitors.items():
        token = await stage.world.operator_token(f"the {role}", role)
        assert (await visitor.sign_in(token)).status == 303
    yield visitors


def _list_addresses(stage: Stage, route: str) -> list[str]:
    """Return the URLs of a route, and all URLs of an operation."""
    if route == _OPERATION:
        return [page_of(action) for action in OPERATIONS]
    ids = {
        "payment_id": stage.known["payment"],
        "case_id": stage.known["case"],
        "refund_id": stage.known["refund"],
        "event_id": stage.known["event"],
        "merchant_id": stage.known["merchant"],
        "session_id": stage.known["run"],
        "extension": "csv",
    }
    if "{approval_id}" not in route:
        return [route.format_map(ids)]
    approvals = (stage.known["approval"], stage.known["refund"])
    return [
        route.format_map({"approval_id": approval, "decision": decision})
        for approval in approvals
        for decision in (("approve", "reject") if route == _DECISION else ("",))
    ]


def _list_forms(stage: Stage) -> list[tuple[str, dict[str, str]]]:
    """Return all forms that change data, with valid values."""
    decision_fields = {"why": "all the same", "note": "all the same", "step": "confirmed"}
    changes = [
        (page_of(action), make_form(stage.fields(action)) | decision_fields)
        for action, kind in OPERATIONS.items()
        if issubclass(kind, ChangeOperation)
    ]
    further_forms = [
        (address, decision_fields)
        for method, route in PROTECTED_ROUTES
        if method == "POST" and route != _OPERATION
        for address in _list_addresses(stage, route)
    ]
    return changes + further_forms


async def test_without_a_session_every_route_redirects_to_the_sign_in_without_changes(
    operator: Api, stage: Stage
) -> None:
    before = await contents(stage.world)
    for cookies in ({}, {"payintent-console": f"{stage.known['run']}.{'A' * 43}"}):
        for method, route in PROTECTED_ROUTES:
            for address in _list_addresses(stage, route):
                stranger = Visitor(operator, dict(cookies))
                is_read = method == "GET"
                request = stranger.get(address) if is_read else stranger.post(address, note="x")
                answer = await request
                assert answer.status == 303, address
                assert answer.headers["Location"].startswith("/sign-in"), address
                assert answer.body == b"", address
    assert await contents(stage.world) == before


async def test_a_form_with_a_wrong_token_or_from_a_foreign_site_is_refused(
    operator: Api, stage: Stage
) -> None:
    ada, alan = Visitor(operator), Visitor(operator)
    await ada.sign_in(stage.tokens["Ada"])
    await alan.sign_in(stage.tokens["Alan"])
    own_origin = operator.base
    variants = [
        ({}, own_origin),
        ({"csrf": ""}, own_origin),
        ({"csrf": alan.csrf}, own_origin),
        ({"csrf": ada.csrf}, _FOREIGN_ORIGIN),
        ({"csrf": ada.csrf}, "null"),
        ({"csrf": ada.csrf}, None),
    ]
    before = await contents(stage.world, but=_USAGE_TABLES)
    forms = _list_forms(stage)
    assert len(forms) > 60
    for address, fields in forms:
        for token, origin in variants:
            headers = {} if origin is None else {"Origin": origin}
            answer = await ada.send_form(address, fields | token, **headers)
            assert answer.status == 403, (address, token, origin)
    assert await contents(stage.world, but=_USAGE_TABLES) == before
    assert (await ada.get("/sessions")).status == 200


@pytest.mark.parametrize("role", list(Role))
async def test_pages_offer_only_operations_that_the_role_allows(
    people: dict[Role, Visitor], stage: Stage, role: Role
) -> None:
    visitor = people[role]
    assert set(NAVIGATION.values()) <= set(PAGES)
    addresses = [address for route in PAGES for address in _list_addresses(stage, route)]
    addresses = [address for address in addresses if not address.startswith(_NO_PAGES)]
    assert await _find_forbidden(visitor, role, addresses) == {}
    await _delete_contents(stage.world)
    lists = [route for route in PAGES if "{" not in route and not route.startswith(_NO_PAGES)]
    assert len(lists) > 10
    assert await _find_forbidden(visitor, role, lists) == {}


async def _find_forbidden(
    visitor: Visitor, role: Role, addresses: list[str]
) -> dict[str, set[str]]:
    """Return the links and forms on these pages that the role does not allow."""
    allowed = {
        page_of(action) for action, kind in OPERATIONS.items() if role.includes(kind.needs_role)
    }
    forbidden: dict[str, set[str]] = {}
    for address in addresses:
        answer = await visitor.get(address)
        assert answer.status == 200, address
        page = html.unescape(answer.body.decode())
        targets = set(_OPERATION_LINK.findall(page)) - allowed
        for target in _FORM_TARGET.findall(page):
            if target.startswith("/approvals/"):
                response = await visitor.post(target, note="")  # without the required note
                targets |= {target} if response.status == 403 else set()
        if targets:
            forbidden[address] = targets
    return forbidden


async def _delete_contents(world: World) -> None:
    """Delete everything except the operators and their sessions."""
    names = await contents(world, but=_PRESERVED_TABLES)
    statements = [f'DELETE FROM "{name}"' for name in names]
    connection = await world.open_connection()
    await connection.execute("; ".join(["SET session_replication_role = replica", *statements]))
    await connection.close()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUPPORT, Role.FINANCE])
async def test_operations_that_a_role_does_not_allow_are_refused_in_every_way(
    people: dict[Role, Visitor], stage: Stage, role: Role
) -> None:
    visitor = people[role]
    before = await contents(stage.world, but=_USAGE_TABLES)
    reasons = {"why": "all the same", "note": "all the same"}
    attempt_count = 0
    for action, kind in OPERATIONS.items():
        if role.includes(kind.needs_role):
            continue
        attempt_count += 1
        fields = make_form(stage.fields(action)) | reasons
        answers = [await visitor.get(page_of(action))]
        answers += [
            await visitor.post(page_of(action), **fields, step=step)
            for step in ("", "dry-run", "confirmed")
        ]
        assert {answer.status for answer in answers} == {403}, action
    assert attempt_count > 10
    decisions = [stage.known["approval"]]  # of an operation that requires the admin role
    decisions += [] if role.includes(Role.FINANCE) else [stage.known["refund"]]
    for approval in decisions:
        page = (await visitor.get(f"/approvals/{approval}")).body.decode()
        for decision in ("approve", "reject"):
            address = f"/approvals/{approval}/{decision}"
            assert address not in page
            assert (await visitor.post(address, **reasons)).status == 403, address
    assert await contents(stage.world, but=_USAGE_TABLES) == before
