"""Developers manage test keys, the webhook secret and test events in the portal."""

import asyncio
import re
from uuid import UUID, uuid4

import pytest

from payintent.core.errors import ConflictError
from payintent.members.edit_test_side import TEST_KEYS_MAX, create_test_key, rotate_test_secret
from payintent.members.model import MemberRole
from payintent.members.operations import member_actor
from tests.portal.member_browser import Person, member, words
from tests.portal.test_settings import developer, find_test_merchant, live_state, read_fields, save
from tests.support.world import Api, World

_SECRET = re.compile(r"whsec_[\w+/=]+")
_KEY = re.compile(r"sk_\w+")
__all__ = ["developer"]


async def test_a_test_key_is_shown_once_and_works_until_it_is_revoked(
    api: Api, developer: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    before = await live_state(api.world)
    fields = await read_fields(developer, "/merchant/keys")
    fields["name"] = "ci"
    token = await developer.token()
    page = await developer.post("/merchant/keys", token, **fields)
    [key] = _KEY.findall(words(page))
    assert (await api.send("GET", "/v1/payments", headers=api.bearer(key))).status == 200
    again = await developer.post("/merchant/keys", token, **fields)  # as if the page were reloaded
    assert again.status == 409
    assert "A key has been created since you opened this page" in words(again)
    body = (await developer.get("/merchant/keys")).body.decode()
    public_id, secret = key.split("_")[2:4]
    assert public_id in body
    assert secret not in again.body.decode() + body
    assert await live_state(api.world) == before
    audit = str([dict(row) for row in await api.world.rows("SELECT * FROM audit")])
    captured = capsys.readouterr()
    assert secret not in audit + captured.out + captured.err
    assert (await developer.post(f"/merchant/keys/{public_id}/revoke")).status == 303
    revoked = await api.send("GET", "/v1/payments", headers=api.bearer(key))
    assert revoked.status in {200, 401}  # the key may be cached for a second


async def test_no_test_side_is_created_if_its_secrets_could_not_be_shown(api: Api) -> None:
    person = await member(api, MemberRole.DEVELOPER)
    connection = await api.world.open_connection()
    async with connection.transaction():
        await connection.execute("SELECT FROM member_session FOR UPDATE")
        assert (await person.post("/merchant/side", side="test")).status == 409
    await connection.close()
    assert await api.world.rows("SELECT FROM merchant WHERE NOT livemode") == []
    page = await person.post("/merchant/side", side="test")
    assert _SECRET.search(words(page))


async def test_parallel_submissions_create_a_single_key_and_a_single_secret(
    api: Api, developer: Person
) -> None:
    token = await developer.token()
    keys = await read_fields(developer, "/merchant/keys")
    secrets = (await read_fields(developer)) | {"overlap_hours": "24"}
    forms = {"/merchant/keys": keys | {"name": "ci"}, "/merchant/settings/secret": secrets}
    for path, fields in forms.items():
        answers = await asyncio.gather(*(developer.post(path, token, **fields) for _ in range(6)))
        assert sorted(answer.status for answer in answers) == [200, *5 * [409]], path
    side = await find_test_merchant(api.world)
    for table in ("api_key", "callback_secret"):
        rows = await api.world.rows(f"SELECT FROM {table} WHERE merchant_id = $1", side)
        assert len(rows) == 2, table  # including the first key or secret


async def test_the_number_of_keys_and_secret_rotations_is_limited(
    api: Api, developer: Person
) -> None:
    del developer
    side, context = await find_test_merchant(api.world), api.world.service.operation_context
    actor = member_actor(api.world.merchant_id, "dee@shop.test")
    newest = (await api.world.rows("SELECT public_id FROM api_key WHERE NOT livemode"))[0]
    newest_key = newest["public_id"]
    for _ in range(TEST_KEYS_MAX - 1):
        issued = await create_test_key(context, actor, side, name="x", newest_key=newest_key)
        newest_key = issued.api_key.split("_")[2]
    with pytest.raises(ConflictError, match="already 50 active keys"):
        await create_test_key(context, actor, side, name="x", newest_key=newest_key)
    for _ in range(19):
        newest_secret = await _newest_secret(api.world)
        await rotate_test_secret(context, actor, side, newest_secret=newest_secret, overlap_s=0)
    newest_secret = await _newest_secret(api.world)
    with pytest.raises(ConflictError, match="20 times an hour"):
        await rotate_test_secret(context, actor, side, newest_secret=newest_secret, overlap_s=0)
    await api.world.move_clock(3_700)
    await rotate_test_secret(context, actor, side, newest_secret=newest_secret, overlap_s=0)


async def _newest_secret(world: World) -> UUID:
    query = "SELECT id FROM callback_secret ORDER BY created_at DESC, id DESC LIMIT 1"
    [row] = await world.rows(query)
    return row["id"]


async def test_a_rotated_secret_is_shown_once_and_the_previous_secret_overlaps(
    api: Api, developer: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = await read_fields(developer) | {"overlap_hours": "1"}
    page = await developer.post("/merchant/settings/secret", **fields)
    [secret] = _SECRET.findall(words(page))
    text = words(await developer.get("/merchant/settings"))
    assert "Signs webhooks until" in text
    again = await developer.post("/merchant/settings/secret", **fields)
    assert again.status == 409
    assert "The secret has been rotated since you opened this page." in words(again)
    audit = str([dict(row) for row in await api.world.rows("SELECT * FROM audit")])
    captured = capsys.readouterr()
    assert secret not in text + words(again) + audit + captured.out + captured.err
    for overlap in ("", "2", "-1", "9999"):
        fields = await read_fields(developer) | {"overlap_hours": overlap}
        assert (await developer.post("/merchant/settings/secret", **fields)).status == 400


@pytest.mark.parametrize(
    ("event_type", "status"),
    [
        ("payment.completed", "PAID"),
        ("payment.failed", "FAILED"),
        ("payment.cancelled", "CANCELLED"),
    ],
)
async def test_a_test_event_creates_a_payment_in_the_matching_status(
    api: Api, developer: Person, event_type: str, status: str
) -> None:
    fields = await read_fields(developer)
    form = {"type": event_type, "key": fields["key"]}
    refused = await developer.post("/merchant/settings/test-event", **form)
    assert (refused.status, "Set a callback URL first." in words(refused)) == (409, True)
    await save(developer, fields, callback_url="http://127.0.0.1:9/hooks")
    answer = await developer.post("/merchant/settings/test-event", **form)
    assert answer.status == 303, words(answer)
    location = answer.headers["Location"]
    assert event_type in words(await developer.get(location))
    [row] = await api.world.rows(
        """
        SELECT p.status, p.merchant_id, d.state
        FROM payment p
        JOIN event e ON e.payment_id = p.id
        JOIN delivery d ON d.event_id = e.id
        """
    )
    assert dict(row) == {
        "status": status,
        "merchant_id": await find_test_merchant(api.world),
        "state": "pending",
    }
    again = await developer.post("/merchant/settings/test-event", **form)
    assert again.headers["Location"] == location  # the form was submitted twice
    conflict = await developer.post(
        "/merchant/settings/test-event",
        type="payment.failed" if event_type != "payment.failed" else "payment.completed",
        key=form["key"],
    )
    assert conflict.status == 409
    assert len(await api.world.rows("SELECT FROM event")) == 1


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"type": "payment.expired", "key": str(uuid4())},
        {"type": "payment.completed", "key": "x"},
    ],
)
async def test_an_invalid_test_event_is_rejected(
    api: Api, developer: Person, form: dict[str, str]
) -> None:
    await save(developer, await read_fields(developer), callback_url="http://127.0.0.1:9/hooks")
    assert (await developer.post("/merchant/settings/test-event", **form)).status == 400
    assert await api.world.rows("SELECT FROM payment") == []
