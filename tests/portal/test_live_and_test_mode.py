"""The switch between the live and the test side, which do not share data."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from pytest_asyncio import fixture
from starlette.routing import Route

from payintent.core.ids import PAYMENT_LINK, STATEMENT, format_id
from payintent.members.model import MemberRole
from payintent.merchants.access_operations import IssueApiKey
from payintent.portal.routes import PORTAL_ROUTES
from tests.payment_links.link_setup import make_link
from tests.portal.member_browser import Person, form_token, invite, member, words
from tests.refunds.requests import create_paid
from tests.support.merchant_test_mode import make_test_world
from tests.support.operation_examples import add_statement
from tests.support.world import Api, World

_BANNER = "Test side. This is test data. No money moves."


async def switch(person: Person, side: str, **fields: str) -> str:
    """Select a side, and return the URL of the redirect."""
    answer = await person.post("/merchant/side", side=side, **fields)
    assert answer.status == 303, words(answer)
    return answer.headers["Location"]


@fixture
async def test_api(api: Api) -> AsyncIterator[Api]:
    async with Api(api.base, await make_test_world(api.world)) as side:
        yield side


async def _create_objects(api: Api) -> dict[str, str]:
    """Create an object of each kind, and return the ids."""
    world = api.world
    payment = await create_paid(api, payer_uid=f"buyer-of-{world.merchant_id}")
    [event] = await world.rows("SELECT id FROM event WHERE merchant_id = $1", world.merchant_id)
    key = (await world.perform(IssueApiKey(merchant_id=world.merchant_id, name="ours"))).api_key
    return {
        "payment_id": payment.json["id"],
        "event_id": str(event["id"]),
        "public_id": key.split("_")[2],
        "statement_id": format_id(STATEMENT, await add_statement(world)),
        "link_id": format_id(PAYMENT_LINK, (await make_link(world)).id),
    }


@pytest.mark.parametrize("role", MemberRole)
async def test_pages_show_only_data_of_the_selected_side(
    api: Api, test_api: Api, role: MemberRole
) -> None:
    ids = {"live": await _create_objects(api), "test": await _create_objects(test_api)}
    person = await member(api, role)
    for side, other_side in (("test", "live"), ("live", "test")):
        await switch(person, side)
        pages = ""
        for path in _paths(ids[side]):
            page = await person.get(path)
            assert (_BANNER in words(page)) == (side == "test" and page.status == 200), path
            pages += page.body.decode(errors="replace")
        foreign = {name: value for name, value in ids[other_side].items() if value in pages}
        own = {name for name, value in ids[side].items() if value in pages}
        assert foreign == {}
        assert own >= {"payment_id", "event_id", "link_id"}
        for path in _paths(ids[other_side]):
            if path not in _paths(ids[side]):
                assert (await person.get(path)).status in {403, 404}, path


def _paths(ids: dict[str, str]) -> list[str]:
    fixed = {"token": "A", "mark": "x", "name": "x", "passkey_id": "x"}
    return [
        route.path.format_map(fixed | ids)
        for route in PORTAL_ROUTES
        if isinstance(route, Route) and "GET" in (route.methods or ())
        if not route.path.startswith(("/merchant/static", "/merchant/sign-in", "/merchant/link"))
        and route.path not in {"/merchant", "/merchant/passkeys/options"}
        and not route.path.endswith((".csv", ".pdf"))
    ]


async def test_switching_sides_leads_to_the_list_of_the_current_page(
    api: Api, test_api: Api
) -> None:
    person = await member(api)
    event_id = (await _create_objects(api))["event_id"]
    page = (await person.get(f"/merchant/events/{event_id}")).body.decode()
    assert 'name="page" value="/merchant/events"' in page
    assert await switch(person, "test", page="/merchant/events") == "/merchant/events"
    assert await switch(person, "live", page="https://evil.test") == "/merchant/overview"
    page = (await person.get("/merchant/access")).body.decode()
    assert 'name="page" value="/merchant/overview"' in page
    assert test_api.world.merchant_id != api.world.merchant_id


async def test_the_selected_side_belongs_to_a_session_and_is_live_by_default(
    api: Api, test_api: Api
) -> None:
    del test_api
    person, colleague = await member(api), await member(api)
    await switch(person, "test")
    assert _BANNER in words(await person.get("/merchant/payments"))
    assert _BANNER not in words(await colleague.get("/merchant/payments"))
    assert (await person.follow_link(await invite(api, "developer@shop.test"))).status == 303
    assert _BANNER not in words(await person.get("/merchant/payments"))


async def test_the_selected_side_is_kept_when_the_cookie_is_replaced(
    api: Api, test_api: Api
) -> None:
    del test_api
    person = await member(api)
    await switch(person, "test")
    await api.world.move_clock(3_700)
    for _ in range(2):
        assert _BANNER in words(await person.get("/merchant/payments"))


async def test_a_form_from_the_other_side_is_rejected_with_an_explanation(
    api: Api, test_api: Api
) -> None:
    ids = {"live": await _create_objects(api), "test": await _create_objects(test_api)}
    person = await member(api)
    tokens = {}
    for side in ("test", "live"):
        await switch(person, side)
        tokens[side] = await person.token()
    before = await _state(api.world)
    for side, other_side in (("test", "live"), ("live", "test")):
        await switch(person, side)
        for path in (
            f"/merchant/keys/{ids[side]['public_id']}/revoke",
            f"/merchant/keys/{ids[other_side]['public_id']}/revoke",
            f"/merchant/events/{ids[side]['event_id']}/replay",
        ):
            answer = await person.post(path, tokens[other_side])
            assert answer.status == 409, path
            assert f"You have switched to the {side} side" in words(answer)
    assert await _state(api.world) == before
    path = f"/merchant/keys/{ids['live']['public_id']}/revoke"
    assert (await person.post(path, tokens["live"])).status == 303


async def _state(world: World) -> object:
    keys = "SELECT public_id FROM api_key WHERE revoked_at IS NULL ORDER BY 1"
    pending = "SELECT event_id FROM delivery WHERE state = 'pending' ORDER BY 1"
    return [await world.rows(query) for query in (keys, pending)]


async def test_signing_out_and_switching_work_from_pages_of_either_side(
    api: Api, test_api: Api
) -> None:
    del test_api
    person = await member(api)
    token = await person.token()
    for side in ("test", "live", "test"):
        fields = {"side": side}
        assert (await person.post("/merchant/side", token, **fields)).status == 303
    assert (await person.post("/merchant/sign-out", token)).status == 303
    assert not person.is_signed_in


async def test_a_developers_first_switch_creates_the_test_side_and_shows_its_secrets(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    person, colleague = await member(api), await member(api, email="dan@shop.test")
    token = await person.token()
    page = await person.post("/merchant/side", token, side="test")
    assert page.status == 200
    assert _BANNER in words(page)
    [key] = [word for word in words(page).split() if word.startswith("sk_test_")]
    [secret] = [word for word in words(page).split() if word.startswith("whsec_")]
    answer = await api.send("GET", "/v1/payments", headers=api.bearer(key))
    assert answer.json["data"] == []
    again = await person.post("/merchant/side", token, side="test")  # as if the page was reloaded
    assert again.status == 303
    assert await switch(colleague, "test") == "/merchant/overview"
    [row] = await api.world.rows("SELECT count(*) AS n FROM merchant WHERE NOT livemode")
    assert row["n"] == 1
    entries = await api.world.rows("SELECT * FROM audit WHERE action = 'key.issue'")
    assert [entry["who"] for entry in entries] == [
        f"merchant:{api.world.merchant_id}:developer@shop.test"
    ]
    logged = str([list(entry.values()) for entry in entries]) + "".join(capsys.readouterr())
    assert key not in logged
    assert secret not in logged


async def test_finance_can_view_a_test_side_but_cannot_create_it(api: Api) -> None:
    finance, developer = await member(api, MemberRole.FINANCE), await member(api)
    assert "/merchant/side" not in (await finance.get("/merchant/payments")).body.decode()
    refused = await finance.post("/merchant/side", side="test")
    assert refused.status == 403
    assert "A member with the developer role can create it" in words(refused)
    assert await api.world.rows("SELECT id FROM merchant WHERE NOT livemode") == []
    await developer.post("/merchant/side", side="test")
    assert "/merchant/side" in (await finance.get("/merchant/payments")).body.decode()
    await switch(finance, "test")
    assert _BANNER in words(await finance.get("/merchant/payments"))


async def test_a_member_of_a_test_merchant_can_only_use_the_test_side(
    api: Api, test_api: Api
) -> None:
    merchant_id = test_api.world.merchant_id
    person = await member(api, email="trial@shop.test", merchant_id=merchant_id)
    page = await person.get("/merchant/payments")
    assert _BANNER in words(page)
    assert "/merchant/side" not in page.body.decode()
    refused = await person.post("/merchant/side", side="live")
    assert (refused.status, "only a test side" in words(refused)) == (400, True)
    await switch(person, "test")
    assert _BANNER in words(await person.get("/merchant/payments"))


@pytest.mark.parametrize("side", ["", "LIVE", "both", "test\x00"])
async def test_an_invalid_side_is_rejected(api: Api, side: str) -> None:
    person = await member(api)
    answer = await person.post(
        "/merchant/side", form_token(await person.get("/merchant/access")), side=side
    )
    assert answer.status == 400
    assert _BANNER not in words(await person.get("/merchant/payments"))


async def test_finance_can_refund_a_test_payment_only_on_the_test_side(
    api: Api, test_api: Api
) -> None:
    payment_id = (await _create_objects(test_api))["payment_id"]
    finance = await member(api, MemberRole.FINANCE)
    path = f"/merchant/payments/{payment_id}/refunds"
    fields = {"amount": "1.00", "key": str(uuid4())}
    assert (await finance.post(path, **fields)).status == 404  # the live side is selected
    await switch(finance, "test")
    assert (await finance.post(path, **fields)).status == 303
    [refund] = await api.world.rows("SELECT merchant_id, requested_by FROM refund")
    side = test_api.world.merchant_id
    assert dict(refund) == {
        "merchant_id": side,
        "requested_by": f"merchant:{side}:finance@shop.test",
    }


async def test_only_one_of_several_parallel_first_switches_shows_the_secrets(api: Api) -> None:
    people = [await member(api, email=f"dev{number}@shop.test") for number in range(4)]
    tokens = [await person.token() for person in people]
    answers = await asyncio.gather(
        *(
            person.post("/merchant/side", token, side="test")
            for person, token in zip(people, tokens, strict=True)
        )
    )
    assert sorted(answer.status for answer in answers) == [200, 303, 303, 303]
    assert len(await api.world.rows("SELECT FROM merchant WHERE NOT livemode")) == 1
    assert len(await api.world.rows("SELECT FROM api_key WHERE NOT livemode")) == 1
    for person in people:
        assert _BANNER in words(await person.get("/merchant/payments"))
