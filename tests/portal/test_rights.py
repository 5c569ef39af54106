"""Access to all portal routes without a session or a right, and to other merchants' objects."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import uuid4

import pytest
from pytest_asyncio import fixture
from starlette.routing import Route

from payintent.members.model import MemberRight, MemberRole, has_right
from payintent.merchants.access_operations import IssueApiKey
from payintent.portal.routes import PORTAL_ROUTES
from tests.payment_links.link_setup import post_link
from tests.portal.arrange import close_a_day
from tests.portal.member_browser import ORIGIN, SIGN_IN, Person, form_token, member, words
from tests.refunds.requests import create_paid
from tests.refunds.requests import post_refund as refund
from tests.support.arrange import payment_of
from tests.support.fakes import captured
from tests.support.world import Api

#: Public routes, with the reason.
OPEN = {
    ("GET", "/merchant"): "redirects",
    ("GET", "/merchant/static/{mark}/{name}"): "files without personal data",
    ("GET", "/merchant/sign-in"): "the sign-in form",
    ("POST", "/merchant/sign-in"): "needs a passkey",
    ("GET", "/merchant/sign-in/options"): "a challenge",
    ("GET", "/merchant/link/{token}"): "shows a button",
    ("POST", "/merchant/link/{token}"): "needs the link",
}
#: Routes for members, with the required right. None if every member has access.
OWN: dict[tuple[str, str], MemberRight | None] = {
    ("POST", "/merchant/sign-out"): None,
    ("POST", "/merchant/side"): None,
    ("GET", "/merchant/access"): None,
    ("GET", "/merchant/passkeys/options"): None,
    ("GET", "/merchant/passkeys"): None,
    ("POST", "/merchant/passkeys"): None,
    ("POST", "/merchant/passkeys/{passkey_id}/remove"): None,
    ("GET", "/merchant/overview"): None,
    ("GET", "/merchant/payments"): None,
    ("GET", "/merchant/payments/export.csv"): None,
    ("GET", "/merchant/payments/{payment_id}"): None,
    ("GET", "/merchant/payments/{payment_id}/refunds"): None,
    ("POST", "/merchant/payments/{payment_id}/refunds"): MemberRight.REFUND,
    ("GET", "/merchant/payment-links"): MemberRight.MANAGE_PAYMENT_LINKS,
    ("POST", "/merchant/payment-links"): MemberRight.MANAGE_PAYMENT_LINKS,
    ("GET", "/merchant/payment-links/{link_id}"): MemberRight.MANAGE_PAYMENT_LINKS,
    ("GET", "/merchant/payment-links/{link_id}/mail"): MemberRight.MANAGE_PAYMENT_LINKS,
    ("POST", "/merchant/payment-links/{link_id}/mail"): MemberRight.MANAGE_PAYMENT_LINKS,
    ("POST", "/merchant/payment-links/{link_id}/deactivate"): MemberRight.MANAGE_PAYMENT_LINKS,
    ("GET", "/merchant/refunds"): None,
    ("GET", "/merchant/payment-links/export.csv"): MemberRight.MANAGE_PAYMENT_LINKS,
    ("GET", "/merchant/refunds/export.csv"): None,
    ("GET", "/merchant/cases"): None,
    ("GET", "/merchant/cases/export.csv"): None,
    ("GET", "/merchant/statements"): MemberRight.SEE_STATEMENTS,
    ("GET", "/merchant/statements/{statement_id}"): MemberRight.SEE_STATEMENTS,
    ("GET", "/merchant/statements/{statement_id}/lines.csv"): MemberRight.SEE_STATEMENTS,
    ("GET", "/merchant/statements/{statement_id}/statement.pdf"): MemberRight.SEE_STATEMENTS,
    ("GET", "/merchant/events"): None,
    ("GET", "/merchant/events/export.csv"): None,
    ("GET", "/merchant/events/{event_id}"): None,
    ("POST", "/merchant/events/{event_id}/replay"): MemberRight.REPLAY,
    ("GET", "/merchant/settings"): None,
    ("GET", "/merchant/settings/save"): None,
    ("POST", "/merchant/settings/save"): MemberRight.MANAGE_TEST,
    ("GET", "/merchant/settings/secret"): None,
    ("POST", "/merchant/settings/secret"): MemberRight.MANAGE_TEST,
    ("GET", "/merchant/settings/test-event"): None,
    ("POST", "/merchant/settings/test-event"): MemberRight.MANAGE_TEST,
    ("GET", "/merchant/keys"): MemberRight.SEE_KEYS,
    ("POST", "/merchant/keys"): MemberRight.MANAGE_TEST,
    ("POST", "/merchant/keys/{public_id}/revoke"): MemberRight.REVOKE_KEYS,
    ("GET", "/merchant/catalog"): None,
    ("GET", "/merchant/calls"): MemberRight.SEE_CALLS,
    ("GET", "/merchant/calls/export.csv"): MemberRight.SEE_CALLS,
}
#: The rights of each role, repeated here so that a change to them fails a test.
RIGHTS = {
    MemberRole.DEVELOPER: {
        "replay",
        "see_keys",
        "revoke_keys",
        "see_calls",
        "manage_test",
        "manage_payment_links",
    },
    MemberRole.FINANCE: {"refund", "replay", "see_statements", "manage_payment_links"},
}


@dataclass
class Shop:
    """A merchant with an object of each kind, and the object ids."""

    api: Api
    ids: dict[str, str]
    marks: list[str]  # strings that must not appear on another merchant's pages

    def path(self, route: str) -> str:
        return route.format_map(self.ids)


@fixture
async def shop(api: Api) -> AsyncIterator[Shop]:
    world = api.world
    created = await create_paid(
        api, payer_uid="buyer-of-ours", metadata={"order_id": "ORDER-OF-OURS"}
    )
    payment = await payment_of(api, created)
    snapshot = await world.read(payment)
    assert snapshot.session is not None
    await world.report(payment, snapshot.session.id, captured(1, reference="second"))
    refund_id = (await refund(api, created, amount="1.00")).json["id"]
    key = (await world.perform(IssueApiKey(merchant_id=world.merchant_id, name="ours"))).api_key
    owner = await member(api, email="owner@shop.test")
    assert (await owner.add_passkey()).status == 303
    [event] = await world.rows("SELECT id FROM event")
    [passkey] = await world.rows("SELECT id FROM member_passkey")
    [case] = (await api.send("GET", "/v1/cases", headers=api.bearer())).json["data"]
    statement_id = await close_a_day(world)
    ids = {
        "payment_id": created.json["id"],
        "statement_id": statement_id,
        "link_id": (await post_link(api)).json["id"],
        "event_id": str(event["id"]),
        "public_id": key.split("_")[2],
        "passkey_id": str(passkey["id"]),
        "token": "A" * 43,
        "mark": "x",
        "name": "portal.css",
    }
    marks = [*ids.values(), refund_id, case["id"], "buyer-of-ours", "ORDER-OF-OURS", "owner@"]
    marks = [mark for mark in marks if mark not in {"x", "portal.css", "A" * 43}]
    yield Shop(api, ids, marks)


def test_every_route_is_listed_as_public_or_for_members() -> None:
    routes = {
        (method, route.path)
        for route in PORTAL_ROUTES
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert routes == set(OPEN) | set(OWN)


@pytest.mark.parametrize("role", MemberRole)
def test_a_role_has_exactly_its_listed_rights(role: MemberRole) -> None:
    assert {right.value for right in MemberRight if has_right(role, right)} == RIGHTS[role]


async def test_every_page_redirects_to_the_sign_in_page_without_a_session(shop: Shop) -> None:
    stranger = Person(shop.api)
    token = form_token(await stranger.get(SIGN_IN))
    before = await _count_rows(shop)
    for cookie in ({}, {"payintent_merchant": "A" * 43}):
        for method, route in OWN:
            stranger.cookies |= cookie
            path = shop.path(route)
            answer = await (stranger.get(path) if method == "GET" else stranger.post(path, token))
            assert answer.status == 303, route
            assert answer.headers["Location"].startswith(SIGN_IN), route
            assert answer.body == b""
    assert await _count_rows(shop) == before


async def test_operator_tokens_and_api_keys_do_not_open_portal_pages(shop: Shop) -> None:
    for key in (shop.api.world.api_key, await shop.api.world.operator_token()):
        answer = await shop.api.send("GET", "/merchant/payments", headers=shop.api.bearer(key))
        assert answer.status == 303


@pytest.mark.parametrize("role", MemberRole)
async def test_actions_that_a_role_does_not_allow_are_hidden_and_refused(
    shop: Shop, role: MemberRole
) -> None:
    person = await member(shop.api, role)
    token = await person.token()
    pages = "".join(
        [
            # Replace errors, because a route returns a PDF.
            (await person.get(shop.path(route))).body.decode(errors="replace")
            for (method, route), right in OWN.items()
            if method == "GET" and (right is None or right in RIGHTS[role])
        ]
    )
    before = await _count_rows(shop)
    for (method, route), right in OWN.items():
        if right is None or right in RIGHTS[role]:
            continue
        path = shop.path(route)
        answer = await (person.get(path) if method == "GET" else person.post(path, token))
        assert answer.status == 403, route
        assert f"Your role ({role}) does not allow this." in words(answer)
        assert f'"{path}"' not in pages, route
    assert await _count_rows(shop) == before


@pytest.mark.parametrize("role", MemberRole)
async def test_objects_of_another_merchant_are_not_found(shop: Shop, role: MemberRole) -> None:
    """Request all routes with ids and all lists as a member of another merchant."""
    spy_merchant = await shop.api.world.add_merchant()
    person = await member(shop.api, role, "spy@other.test", spy_merchant.merchant.id)
    token = await person.token()
    before = await _count_rows(shop)
    for (method, route), right in OWN.items():
        if (right is not None and right not in RIGHTS[role]) or route.endswith("sign-out"):
            continue
        path = shop.path(route)
        fields = {"amount": "1.00", "key": str(uuid4())}
        answer = await (person.get(path) if method == "GET" else person.post(path, token, **fields))
        if "{" in route:
            assert answer.status == 404, route
            assert _find_marks(shop, words(answer)) == []
        body = answer.body.decode()
        assert [mark for mark in shop.marks if mark in body] == [], route
    assert await _count_rows(shop) == before


async def test_a_search_does_not_find_data_of_another_merchant(shop: Shop) -> None:
    spy_merchant = await shop.api.world.add_merchant()
    person = await member(shop.api, MemberRole.FINANCE, "spy@other.test", spy_merchant.merchant.id)
    [row] = await shop.api.world.rows(
        "SELECT p.checkout_id, s.reference FROM payment p JOIN session s ON s.id = p.session_id"
    )
    for text in (*shop.marks, row["checkout_id"], row["reference"] or "x", "second"):
        page = words(await person.get(f"/merchant/payments?q={text}"))
        assert "No payments" in page, text
        assert "buyer-of-ours" not in page.replace(f"“{text}”", "")
    assert "ORDER-OF-OURS" in words(
        await (await member(shop.api)).get("/merchant/payments?q=buyer-of-ours")
    )


async def test_a_search_cursor_of_another_merchant_is_treated_as_unknown(shop: Shop) -> None:
    spy_merchant = await shop.api.world.add_merchant()
    person = await member(shop.api, MemberRole.FINANCE, "spy@other.test", spy_merchant.merchant.id)
    query = f"q=x&before={shop.ids['payment_id']}"
    assert "No payments" not in words(await person.get(f"/merchant/payments?{query}"))
    foreign = await person.get(f"/merchant/payments?{query}")
    unknown = await person.get("/merchant/payments?q=x&before=pay_0000000000000000000001")
    assert words(foreign) == words(unknown)


async def test_a_form_needs_the_token_of_the_same_member(shop: Shop) -> None:
    person = await member(shop.api, MemberRole.FINANCE)
    colleague = await member(shop.api, MemberRole.FINANCE, "other@shop.test")
    developer = await member(shop.api)
    before = await _count_rows(shop)
    tokens = ["", "x", "\ud800".encode("utf-8", "surrogatepass").hex(), await colleague.token()]
    for (method, route), right in OWN.items():
        if method == "GET":
            continue
        sender = person if right in {None, *RIGHTS[MemberRole.FINANCE]} else developer
        for token in tokens:
            answer = await sender.post(shop.path(route), token, amount="1.00", key=str(uuid4()))
            assert answer.status == 403, route
            assert "reload the page" in words(answer)
    assert await _count_rows(shop) == before


@pytest.mark.parametrize(
    "request_headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://pay.test.evil.example"},
        {"Origin": "https://pay.test"},
    ],
)
async def test_a_cross_site_form_is_refused_even_with_a_valid_token(
    shop: Shop, request_headers: dict[str, str]
) -> None:
    people = {role: await member(shop.api, role) for role in MemberRole}
    stranger = Person(shop.api)
    visitors_token = form_token(await stranger.get(SIGN_IN))
    tokens = {role: await person.token() for role, person in people.items()}
    before = await _count_rows(shop)
    for (method, route), right in (OPEN | OWN).items():
        if method == "GET":
            continue
        role = next((role for role in MemberRole if right in {None, *RIGHTS[role]}), None)
        person = stranger if role is None else people[role]
        token = visitors_token if role is None else tokens[role]
        fields = {"form_token": token, "amount": "1.00", "key": str(uuid4())}
        answer = await person.send("POST", shop.path(route), data=fields, headers=request_headers)
        assert answer.status == 403, route
        assert "reload the page" in words(answer), route
    assert await _count_rows(shop) == before
    assert (await people[MemberRole.FINANCE].get("/merchant/payments")).status == 200


@pytest.mark.parametrize("origin", [ORIGIN, "null"])
async def test_a_same_origin_form_is_accepted_even_if_its_origin_is_null(
    api: Api, origin: str
) -> None:
    """Browsers send `null` if a page has a no-referrer policy, as our pages do."""
    person = await member(api)
    fields = {"form_token": await person.token()}
    request_headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
    answer = await person.send("POST", "/merchant/sign-out", data=fields, headers=request_headers)
    assert (answer.status, answer.headers["Location"]) == (303, SIGN_IN)


async def test_a_member_cannot_remove_the_passkey_of_another_member(shop: Shop) -> None:
    colleague = await member(shop.api)
    path = shop.path("/merchant/passkeys/{passkey_id}/remove")
    assert (await colleague.post(path)).status == 404
    assert len(await shop.api.world.rows("SELECT FROM member_passkey")) == 1


async def test_invalid_ids_return_a_not_found_page(shop: Shop) -> None:
    people = {role: await member(shop.api, role) for role in MemberRole}
    for (method, route), right in OWN.items():
        if "{" not in route:
            continue
        role = next(role for role in MemberRole if right is None or right in RIGHTS[role])
        for wrong in ("x", "%00", "pay_%ff", "0" * 300, "pay_" + "0" * 22):
            path = route.format_map(dict.fromkeys(shop.ids, wrong))
            person = people[role]
            answer = await (person.get(path) if method == "GET" else person.post(path))
            assert answer.status == 404, (route, wrong)
            assert answer.headers["Content-Type"].startswith("text/html"), (route, wrong)


def _find_marks(shop: Shop, text: str) -> list[str]:
    return [mark for mark in shop.marks if mark in text]


async def _count_rows(shop: Shop) -> dict[str, int]:
    """Count the rows that a form can change, by kind."""
    queries = {
        "refunds": "SELECT count(*) AS n FROM refund",
        "revoked": "SELECT count(*) AS n FROM api_key WHERE revoked_at IS NOT NULL",
        "pending": "SELECT count(*) AS n FROM delivery WHERE state = 'pending'",
        "links": "SELECT count(*) AS n FROM payment_link WHERE deactivated_at IS NULL",
        "passkeys": "SELECT count(*) AS n FROM member_passkey",
        "sessions": "SELECT count(*) AS n FROM member_session",
        "audit": (
            "SELECT count(*) AS n FROM audit WHERE action NOT IN ('merchant.invite', 'list.export')"
        ),
    }
    return {name: (await shop.api.world.rows(query))[0]["n"] for name, query in queries.items()}
