"""Every console route without a session, with a foreign form, and with each role.

The routes and operations come from the tables that the console serves, so that all are tested.
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
from tests.console.test_operations import page_of, typed
from tests.console.visitor import Visitor
from tests.support.contents import contents
from tests.support.stage import Stage
from tests.support.world import Api, World

#: Routes for anybody, with why that is right.
OPEN = {
    ("GET", "/sign-in"): "to sign in at",
    ("POST", "/sign-in"): "needs a token",
    ("GET", "/sign-in/oidc"): "leads to the provider",
    ("GET", "/sign-in/oidc/callback"): "needs what the provider says",
    ("GET", "/static/{mark}/{name}"): "files that are the same for all",
}
OWN = [
    (method, route.path)
    for route in CONSOLE_ROUTES
    if isinstance(route, Route)
    for method in (route.methods or set()) - {"HEAD"}
    if (method, route.path) not in OPEN
]
PAGES = [path for method, path in OWN if method == "GET"]
_OPERATION = "/operations/{subject}/{verb}"
_DECISION = "/approvals/{approval_id}/{decision}"
#: Parts of the first page, which the browser reads beside it.
_NO_PAGES = ("/today/", "/audit/export", "/operations/")
#: Tables with rows from the beginning on, and those of who is signed in.
_KEPT = {
    *("chain", "chain_token", "configuration_version", "figure_mark", "provider", "restriction"),
    *("console_session", "operator_token", "schema_migration"),
}
_OF_OTHERS = "https://evil.example"
_SENT_TO = re.compile(r'(?:action|formaction)="([^"]*)"')
_LED_TO = re.compile(r'href="(/operations/[^"?]+/[^"?]+)')
#: What a request writes although it changes nothing: when a session and a token were last used.
_USES = {"console_session", "operator_token"}


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


def _addresses(stage: Stage, route: str) -> list[str]:
    """Return the URLs of a route, and all URLs of an operation."""
    if route == _OPERATION:
        return [page_of(action) for action in OPERATIONS]
    known = {
        "payment_id": stage.known["payment"],
        "case_id": stage.known["case"],
        "refund_id": stage.known["refund"],
        "event_id": stage.known["event"],
        "merchant_id": stage.known["merchant"],
        "session_id": stage.known["run"],
        "extension": "csv",
    }
    if "{approval_id}" not in route:
        return [route.format_map(known)]
    waiting = (stage.known["approval"], stage.known["refund"])
    return [
        route.format_map({"approval_id": approval, "decision": decision})
        for approval in waiting
        for decision in (("approve", "reject") if route == _DECISION else ("",))
    ]


def _forms(stage: Stage) -> list[tuple[str, dict[str, str]]]:
    """Return each form that changes data, with valid values."""
    done = {"why": "all the same", "note": "all the same", "step": "confirmed"}
    changes = [
        (page_of(action), typed(stage.fields(action)) | done)
        for action, kind in OPERATIONS.items()
        if issubclass(kind, ChangeOperation)
    ]
    others = [
        (address, done)
        for method, route in OWN
        if method == "POST" and route != _OPERATION
        for address in _addresses(stage, route)
    ]
    return changes + others


async def test_without_a_session_every_route_redirects_to_the_sign_in_without_changes(
    operator: Api, stage: Stage
) -> None:
    before = await contents(stage.world)
    for cookies in ({}, {"payintent-console": f"{stage.known['run']}.{'A' * 43}"}):
        for method, route in OWN:
            for address in _addresses(stage, route):
                stranger = Visitor(operator, dict(cookies))
                is_read = method == "GET"
                sent = stranger.get(address) if is_read else stranger.post(address, note="x")
                answer = await sent
                assert answer.status == 303, address
                assert answer.headers["Location"].startswith("/sign-in"), address
                assert answer.body == b"", address
    assert await contents(stage.world) == before


async def test_a_form_with_a_wrong_token_or_from_another_site_is_refused(
    operator: Api, stage: Stage
) -> None:
    ada, alan = Visitor(operator), Visitor(operator)
    await ada.sign_in(stage.tokens["Ada"])
    await alan.sign_in(stage.tokens["Alan"])
    ours = operator.base
    sent = [
        ({}, ours),
        ({"csrf": ""}, ours),
        ({"csrf": alan.csrf}, ours),
        ({"csrf": ada.csrf}, _OF_OTHERS),
        ({"csrf": ada.csrf}, "null"),
        ({"csrf": ada.csrf}, None),
    ]
    before = await contents(stage.world, but=_USES)
    forms = _forms(stage)
    assert len(forms) > 60
    for address, fields in forms:
        for own, origin in sent:
            headers = {} if origin is None else {"Origin": origin}
            answer = await ada.send_form(address, fields | own, **headers)
            assert answer.status == 403, (address, own, origin)
    assert await contents(stage.world, but=_USES) == before
    assert (await ada.get("/sessions")).status == 200


@pytest.mark.parametrize("role", list(Role))
async def test_pages_offer_only_operations_that_the_role_allows(
    people: dict[Role, Visitor], stage: Stage, role: Role
) -> None:
    visitor = people[role]
    assert set(NAVIGATION.values()) <= set(PAGES)
    addresses = [address for route in PAGES for address in _addresses(stage, route)]
    addresses = [address for address in addresses if not address.startswith(_NO_PAGES)]
    assert await _led_astray(visitor, role, addresses) == {}
    await _empty(stage.world)
    lists = [route for route in PAGES if "{" not in route and not route.startswith(_NO_PAGES)]
    assert len(lists) > 10
    assert await _led_astray(visitor, role, lists) == {}


async def _led_astray(visitor: Visitor, role: Role, addresses: list[str]) -> dict[str, set[str]]:
    """Return the links and forms on pages that this role must not use."""
    allowed = {
        page_of(action) for action, kind in OPERATIONS.items() if role.includes(kind.needs_role)
    }
    astray: dict[str, set[str]] = {}
    for address in addresses:
        answer = await visitor.get(address)
        assert answer.status == 200, address
        page = html.unescape(answer.body.decode())
        wrong = set(_LED_TO.findall(page)) - allowed
        for target in _SENT_TO.findall(page):
            if target.startswith("/approvals/"):
                refused = await visitor.post(target, note="")  # which a decision needs
                wrong |= {target} if refused.status == 403 else set()
        if wrong:
            astray[address] = wrong
    return astray


async def _empty(world: World) -> None:
    """Delete everything except the operators and their sessions."""
    names = await contents(world, but=_KEPT)
    statements = [f'DELETE FROM "{name}"' for name in names]
    connection = await world.open_connection()
    await connection.execute("; ".join(["SET session_replication_role = replica", *statements]))
    await connection.close()


@pytest.mark.parametrize("role", [Role.VIEWER, Role.SUPPORT, Role.FINANCE])
async def test_operations_that_a_role_does_not_allow_are_refused_in_every_way(
    people: dict[Role, Visitor], stage: Stage, role: Role
) -> None:
    visitor = people[role]
    before = await contents(stage.world, but=_USES)
    done = {"why": "all the same", "note": "all the same"}
    tried = 0
    for action, kind in OPERATIONS.items():
        if role.includes(kind.needs_role):
            continue
        tried += 1
        fields = typed(stage.fields(action)) | done
        answers = [await visitor.get(page_of(action))]
        answers += [
            await visitor.post(page_of(action), **fields, step=step)
            for step in ("", "dry-run", "confirmed")
        ]
        assert {answer.status for answer in answers} == {403}, action
    assert tried > 10
    decisions = [stage.known["approval"]]  # of what only an admin may do
    decisions += [] if role.includes(Role.FINANCE) else [stage.known["refund"]]
    for approval in decisions:
        page = (await visitor.get(f"/approvals/{approval}")).body.decode()
        for decision in ("approve", "reject"):
            address = f"/approvals/{approval}/{decision}"
            assert address not in page
            assert (await visitor.post(address, **done)).status == 403, address
    assert await contents(stage.world, but=_USES) == before
