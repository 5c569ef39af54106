"""The settings page: developers can change test settings, and live settings are read-only."""

import asyncio
import html
import re
from dataclasses import replace
from uuid import uuid4

import asyncpg
import pytest
from pytest_asyncio import fixture

from payintent.core.errors import BadRequestError, RefusedError
from payintent.http.egress import EgressRules
from payintent.members.edit_test_side import (
    EditableSettings,
    change_test_settings,
    create_test_key,
    rotate_test_secret,
)
from payintent.members.model import MemberRole
from payintent.members.operations import member_actor
from payintent.merchants.access_operations import IssueApiKey
from payintent.merchants.callback_secrets import RotateCallbackSecret
from payintent.merchants.operations import (
    SetCallbackUrl,
    SetMerchantProfile,
    check_merchant_callback_url,
)
from payintent.operators.operation import run
from payintent.portal.settings import _name_settings
from payintent.runtime.settings import Settings
from payintent.webhooks import outbox_store
from payintent.webhooks.model import EventType
from tests.portal.member_browser import Person, member, words
from tests.portal.test_live_and_test_mode import switch
from tests.support.world import Api, World

_FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')
_AREA = re.compile(r'<textarea[^>]*name="(\w+)"[^>]*>([^<]*)</textarea>')
_VALUES = {
    "callback_url": "http://127.0.0.1:9/hooks",
    "return_url": "http://shop.test/back",
    "allowed_origins": "http://shop.test\nhttps://www.shop.test",
    "logo_url": "http://shop.test/logo.png",
    "accent_colour": "#0B5BD3",
}
_SECRET = re.compile(r"whsec_[\w+/=]+")
_KEY = re.compile(r"sk_\w+")


@fixture
async def developer(api: Api) -> Person:
    """A developer who has selected the test side."""
    person = await member(api)
    assert (await person.post("/merchant/side", side="test")).status == 200
    return person


async def find_test_merchant(world: World) -> int:
    [row] = await world.rows("SELECT id FROM merchant WHERE NOT livemode")
    return row["id"]


async def live_state(world: World) -> object:
    """Return all live settings that the settings page shows."""
    queries = (
        "SELECT * FROM merchant WHERE livemode ORDER BY id",
        "SELECT * FROM api_key WHERE livemode ORDER BY public_id",
        "SELECT * FROM callback_secret WHERE merchant_id = 1 ORDER BY id",
        "SELECT p.id FROM payment p JOIN merchant m ON m.id = p.merchant_id WHERE m.livemode",
    )
    return [[dict(row) for row in await world.rows(query)] for query in queries]


async def read_fields(person: Person, path: str = "/merchant/settings") -> dict[str, str]:
    """Return the fields that a browser would send for all forms of a page."""
    body = (await person.get(path)).body.decode()
    pairs = _FIELD.findall(body) + _AREA.findall(body)
    return {name: html.unescape(value) for name, value in pairs if name != "form_token"}


async def save(person: Person, fields: dict[str, str], **changes: str) -> str:
    answer = await person.post("/merchant/settings/save", **(fields | changes))
    assert answer.status in {303, 400, 409}, words(answer)
    return answer.headers.get("Location") or words(answer)


async def test_a_developer_can_change_the_test_side_but_not_the_live_side(
    api: Api, developer: Person
) -> None:
    world, before = api.world, await live_state(api.world)
    assert await save(developer, await read_fields(developer), **_VALUES) == (
        "/merchant/settings?saved=1"
    )
    assert "The settings have been saved." in words(
        await developer.get("/merchant/settings?saved=1")
    )
    [row] = await world.rows(
        "SELECT callback_url, return_url, allowed_origins, logo_url, accent_colour "
        "FROM merchant WHERE NOT livemode"
    )
    assert dict(row) == _VALUES | {
        "allowed_origins": ["http://shop.test", "https://www.shop.test"],
        "accent_colour": "#0b5bd3",
    }
    assert await live_state(world) == before
    entries = await world.rows("SELECT who, why, action, merchant_id FROM audit ORDER BY id")
    side, who = await find_test_merchant(world), f"merchant:{world.merchant_id}:developer@shop.test"
    assert [dict(entry) for entry in entries[-2:]] == [
        {"who": who, "why": "in the merchant portal", "action": action, "merchant_id": side}
        for action in ("merchant.profile", "merchant.set-callback-url")
    ]
    cleared = dict.fromkeys(_VALUES, "")
    await save(developer, await read_fields(developer), **cleared)
    fields = await read_fields(developer)
    assert {fields[name] for name in _VALUES} == {""}


async def test_members_learn_who_can_allow_http() -> None:
    with pytest.raises(BadRequestError) as refused:
        await check_merchant_callback_url("http://shop.test/", EgressRules(), allow_http=False)
    message = "Callback URL must be https unless your payment service provider allows http"
    assert _name_settings(refused.value.message) == message


async def test_nothing_is_written_if_nothing_was_changed(api: Api, developer: Person) -> None:
    entries = await api.world.rows("SELECT id FROM audit")
    fields = await read_fields(developer)
    assert await save(developer, fields) == "/merchant/settings?saved=1"
    assert await api.world.rows("SELECT id FROM audit") == entries


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("callback_url", "ftp://shop.test/", "the scheme must be http or https"),
        ("callback_url", "http://user:pw@shop.test/", "must not contain a user name or password"),
        ("callback_url", "http://169.254.169.254/latest", "cloud metadata"),
        ("callback_url", "http://[::ffff:127.0.0.1]/", "IPv4 inside IPv6"),
        ("callback_url", "http://0x7f.1/", "standard form"),
        ("callback_url", "http://no-such-host.invalid/", "must resolve only to public addresses"),
        ("callback_url", "http://" + "a" * 3000, "must not be longer"),
        ("return_url", "javascript:alert(1)", "Return URL must be an https URL"),
        ("allowed_origins", "https://shop.test/path", "is not an origin"),
        ("allowed_origins", " ".join(f"https://s{n}.test" for n in range(21)), "at most 20"),
        ("logo_url", "data:image/png;base64,xx", "Logo URL must be an https URL"),
        ("accent_colour", "red", "is not a colour"),
    ],
)
async def test_an_invalid_value_is_rejected_and_kept_in_the_form(
    api: Api, developer: Person, name: str, value: str, message: str
) -> None:
    before = await api.world.rows("SELECT * FROM merchant ORDER BY id")
    fields = await read_fields(developer)
    changes = {"return_url": "http://shop.test/kept", name: value}
    answer = await developer.post("/merchant/settings/save", **(fields | changes))
    assert answer.status == 400
    assert message in words(answer)
    body = html.unescape(answer.body.decode())
    assert all(text in body for text in changes["return_url"].split() + value.split())
    assert await api.world.rows("SELECT * FROM merchant ORDER BY id") == before


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "https://localhost/",
            "The host of the callback URL must resolve only to public addresses.",
        ),
        (
            "https://no-such-host.invalid/",
            "The host of the callback URL must resolve only to public",
        ),
        ("https://127.0.0.1/", "loopback"),
        ("https://10.1.2.3/", "private"),
        ("https://[::1]/", "loopback"),
        ("https://shop.example.com:22/", "the port must be one of"),
        ("http://shop.example.com/", "must be https"),
    ],
)
async def test_callback_urls_in_the_operators_network_are_rejected_in_production(
    api: Api, developer: Person, settings: Settings, url: str, message: str
) -> None:
    """The error does not reveal whether a host name exists."""
    del developer
    allowed = {"sandbox": False, "webhook_networks": "127.0.0.0/8,10.0.0.0/8,::1"}
    context = replace(
        api.world.service.operation_context, settings=settings.model_copy(update=allowed)
    )
    side = await find_test_merchant(api.world)
    with pytest.raises(BadRequestError, match=message):
        await change_test_settings(
            context,
            member_actor(api.world.merchant_id, "dee@shop.test"),
            side,
            opened=EditableSettings(),
            entered=EditableSettings(callback_url=url),
        )
    [row] = await api.world.rows("SELECT callback_url FROM merchant WHERE NOT livemode")
    assert row["callback_url"] is None


async def test_a_callback_url_is_marked_as_set_by_a_member_until_an_operator_sets_it(
    api: Api, developer: Person
) -> None:
    world = api.world
    await save(developer, await read_fields(developer), callback_url="http://127.0.0.1:9/hooks")
    side = await find_test_merchant(world)
    await world.service.event_trigger.trigger(side, EventType.COMPLETED, uuid4())
    [delivery] = await outbox_store.claim_due(world.database, [(side, 1)], 45)
    assert (delivery.url, delivery.is_public_only) == ("http://127.0.0.1:9/hooks", True)
    with pytest.raises(asyncpg.CheckViolationError, match="merchant_callback_by_member"):
        await world.rows("UPDATE merchant SET callback_by_member = true WHERE livemode")
    await world.perform(SetCallbackUrl(merchant_id=side, callback_url="http://127.0.0.1:9/op"))
    query = "SELECT callback_by_member FROM merchant WHERE id = $1"
    assert [dict(row) for row in await world.rows(query, side)] == [{"callback_by_member": False}]


async def test_changes_by_two_developers_to_different_settings_are_both_stored(
    api: Api, developer: Person
) -> None:
    colleague = await member(api, email="dan@shop.test")
    await switch(colleague, "test")
    first, second = await read_fields(developer), await read_fields(colleague)
    await save(developer, first, callback_url="http://127.0.0.1:9/a")
    assert await save(colleague, second, accent_colour="#112233") == "/merchant/settings?saved=1"
    fields = await read_fields(developer)
    assert (fields["callback_url"], fields["accent_colour"]) == ("http://127.0.0.1:9/a", "#112233")


async def test_a_conflicting_change_shows_both_values_and_can_be_saved_again(
    api: Api, developer: Person
) -> None:
    colleague = await member(api, email="dan@shop.test")
    await switch(colleague, "test")
    first, second = await read_fields(developer), await read_fields(colleague)
    theirs = {"return_url": "http://shop.test/theirs", "logo_url": "http://shop.test/theirs.png"}
    await save(developer, first, **theirs)
    ours = {"return_url": "http://shop.test/ours", "accent_colour": "#445566"}
    answer = await colleague.post("/merchant/settings/save", **(second | ours))
    assert answer.status == 409
    text = words(answer)
    assert "Another member has changed the same settings since you opened this page." in text
    assert "Save again to replace the other member's values." in text
    assert "Another member has set this to: http://shop.test/theirs" in text
    [row] = await api.world.rows(
        "SELECT return_url, accent_colour FROM merchant WHERE NOT livemode"
    )
    assert dict(row) == {"return_url": theirs["return_url"], "accent_colour": None}
    body = answer.body.decode()
    again = {name: html.unescape(value) for name, value in _FIELD.findall(body)}
    areas = {name: html.unescape(value) for name, value in _AREA.findall(body)}
    again = {name: value for name, value in (again | areas).items() if name != "form_token"}
    assert again["return_url"] == ours["return_url"]
    assert await save(colleague, again) == "/merchant/settings?saved=1"
    fields = await read_fields(developer)
    expected = theirs | ours
    assert {name: fields[name] for name in expected} == expected


async def test_only_one_of_several_parallel_changes_to_a_setting_is_stored(
    api: Api, developer: Person
) -> None:
    fields, token = await read_fields(developer), await developer.token()
    answers = await asyncio.gather(
        *(
            developer.post(
                "/merchant/settings/save",
                token,
                **(fields | {"return_url": f"http://shop.test/{number}"}),
            )
            for number in range(8)
        )
    )
    assert sorted(answer.status for answer in answers) == [303, *7 * [409]]
    stored = (await read_fields(developer))["return_url"]
    winner = next(n for n, answer in enumerate(answers) if answer.status == 303)
    assert stored == f"http://shop.test/{winner}"


async def test_the_live_side_is_read_only_and_refuses_every_form(
    api: Api, developer: Person
) -> None:
    world = api.world
    await world.perform(
        SetCallbackUrl(merchant_id=world.merchant_id, callback_url="http://127.0.0.1:9/live")
    )
    await switch(developer, "live")
    page = await developer.get("/merchant/settings")
    assert "http://127.0.0.1:9/live" in words(page)
    assert "Only your payment service provider can change live settings." in words(page)
    assert "<textarea" not in page.body.decode()
    assert "/merchant/settings/" not in page.body.decode()
    assert 'action="/merchant/keys"' not in (await developer.get("/merchant/keys")).body.decode()
    before = await live_state(world)
    [secret] = await world.rows(
        "SELECT id FROM callback_secret WHERE merchant_id = $1", world.merchant_id
    )
    [key] = await world.rows(
        "SELECT public_id FROM api_key WHERE merchant_id = $1", world.merchant_id
    )
    for path, fields in {
        "/merchant/settings/save": _VALUES | {"opened_callback_url": "http://127.0.0.1:9/live"},
        "/merchant/settings/secret": {"newest_secret": str(secret["id"]), "overlap_hours": "0"},
        "/merchant/settings/test-event": {"type": "payment.completed", "key": str(uuid4())},
        "/merchant/keys": {"name": "x", "newest_key": key["public_id"]},
    }.items():
        answer = await developer.post(path, **fields)
        assert answer.status == 403, path
        assert "test side" in words(answer) or "live side" in words(answer)
    assert await live_state(world) == before


@pytest.mark.parametrize("contact", ["help@psp.example", "https://psp.example/help"])
async def test_the_operator_contact_is_shown_as_a_link(
    api: Api, contact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("payintent.portal.visits.MemberVisit.contact", property(lambda _: contact))
    person = await member(api)
    link = contact if "://" in contact else f"mailto:{contact}"
    for path in ("/merchant/settings", "/merchant/keys"):
        assert f'<a href="{link}">{contact}</a>' in (await person.get(path)).body.decode()


@pytest.mark.parametrize("contact", ["javascript:alert(1)", "http://psp.example", "call us", "@"])
def test_a_contact_must_be_an_email_address_or_an_https_url(contact: str) -> None:
    with pytest.raises(ValueError, match="must be an email address, or an https URL"):
        Settings(database_url="postgresql:///x", operator_contact=contact)


async def test_changes_are_rate_limited(api: Api, developer: Person) -> None:
    token = await developer.token()
    forms = {"return_url": "x"}
    answers = [await developer.post("/merchant/settings/save", token, **forms) for _ in range(32)]
    assert {answer.status for answer in answers[:25]} == {400}
    assert 429 in {answer.status for answer in answers}
    assert int(next(a for a in answers if a.status == 429).headers.get("Retry-After", "0")) >= 0
    assert (await developer.get("/merchant/settings")).status == 200


async def test_finance_and_other_merchants_cannot_change_the_test_side(
    api: Api, developer: Person
) -> None:
    finance = await member(api, MemberRole.FINANCE)
    await switch(finance, "test")
    page = await finance.get("/merchant/settings")
    assert "A member with the developer role can change these settings." in words(page)
    assert "/merchant/settings/" not in page.body.decode()
    spy_merchant = await api.world.add_merchant()
    spy = await member(api, email="spy@other.test", merchant_id=spy_merchant.merchant.id)
    await spy.post("/merchant/side", side="test")
    ours = await _read_test_state(api)
    keys = await read_fields(developer, "/merchant/keys")
    fields = await read_fields(developer) | {"overlap_hours": "0", "type": "payment.completed"}
    for path in ("settings/save", "settings/secret", "settings/test-event", "keys"):
        answer = await finance.post(f"/merchant/{path}", **(fields | keys | _VALUES))
        assert answer.status == 403, path
        answer = await spy.post(
            f"/merchant/{path}", **(fields | keys | {"merchant_id": str(api.world.merchant_id)})
        )
        # If the spy sends our ids, at most the spy's own settings are saved.
        assert answer.status in {303, 409}, path
    assert await _read_test_state(api) == ours


async def _read_test_state(api: Api) -> object:
    queries = (
        "SELECT * FROM merchant WHERE live_merchant = $1",
        """
        SELECT k.*
        FROM api_key k
        JOIN merchant m ON m.id = k.merchant_id AND m.live_merchant = $1
        """,
        """
        SELECT s.*
        FROM callback_secret s
        JOIN merchant m ON m.id = s.merchant_id AND m.live_merchant = $1
        """,
    )
    return [
        [dict(row) for row in await api.world.rows(query, api.world.merchant_id)]
        for query in queries
    ]


async def test_the_settings_functions_refuse_a_live_merchant(api: Api) -> None:
    world, before = api.world, await live_state(api.world)
    context = world.service.operation_context
    actor = member_actor(world.merchant_id, "dee@shop.test")
    live, opened = world.merchant_id, EditableSettings()
    entered = EditableSettings(return_url="http://shop.test/x")
    with pytest.raises(RefusedError, match="can change the live side"):
        await change_test_settings(context, actor, live, opened=opened, entered=entered)
    with pytest.raises(RefusedError, match="can change the live side"):
        await create_test_key(context, actor, live, name="x", newest_key="")
    with pytest.raises(RefusedError, match="can change the live side"):
        await rotate_test_secret(context, actor, live, newest_secret=None, overlap_s=0)
    with pytest.raises(RefusedError, match="only on the test side"):
        await world.service.event_trigger.trigger(live, EventType.COMPLETED, uuid4())
    assert await live_state(world) == before


async def test_the_database_rejects_changes_by_a_member_to_a_live_merchant(api: Api) -> None:
    world, before = api.world, await live_state(api.world)
    actor = member_actor(world.merchant_id, "dee@shop.test")
    context = replace(world.service.operation_context, actor=actor)
    for change in (
        SetMerchantProfile(merchant_id=world.merchant_id, accent_colour="#112233"),
        SetCallbackUrl(merchant_id=world.merchant_id, callback_url="http://127.0.0.1:9/x"),
        RotateCallbackSecret(merchant_id=world.merchant_id),
        IssueApiKey(merchant_id=world.merchant_id, name="x"),
    ):
        with pytest.raises(
            asyncpg.CheckViolationError, match=r"members change only|callback_by_member"
        ):
            async with world.database.transaction() as tx:
                await run(context, tx, change)
    assert await live_state(world) == before
