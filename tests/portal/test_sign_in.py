"""Sign-in with an invitation or a passkey, and rejected attempts to sign in."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from payintent.members import sessions_store as session_store
from payintent.members import store as member_store
from payintent.members.model import MemberRole
from payintent.members.operations import RemoveMember
from payintent.members.store import PasskeyUse
from tests.portal.authenticator import PRESENT
from tests.portal.member_browser import (
    ORIGIN,
    SESSION,
    SIGN_IN,
    Person,
    form_token,
    invite,
    member,
    words,
)
from tests.support.world import Api

_HOUR_S = 3_600


@pytest.fixture
async def person(api: Api) -> Person:
    """A member with a passkey who has signed out."""
    person = await member(api)
    assert (await person.add_passkey()).status == 303
    await person.sign_out()
    return person


async def _check_refused(person: Person, credential: str, token: str | None = None) -> None:
    token = token or form_token(await person.get(SIGN_IN))
    answer = await person.send_sign_in(credential, token)
    assert answer.status == 403
    assert "We could not sign you in." in words(answer)
    assert not person.is_signed_in


async def test_an_invited_member_adds_a_passkey_and_signs_in_with_it(api: Api) -> None:
    person = Person(api)
    answer = await person.follow_link(await invite(api))
    assert (answer.status, answer.headers["Location"]) == (303, "/merchant/access")
    assert (await person.add_passkey()).status == 303
    assert (await person.sign_out()).headers["Location"] == SIGN_IN
    assert not person.is_signed_in
    answer = await person.sign_in("/merchant/events")
    assert (answer.status, answer.headers["Location"]) == (303, "/merchant/events")
    assert (await person.get("/merchant/events")).status == 200


async def test_a_link_works_only_once_even_if_used_concurrently(api: Api) -> None:
    link = await invite(api)
    people = [Person(api) for _ in range(4)]
    for person in people:
        await person.get(SIGN_IN)
    answers = await asyncio.gather(*(person.follow_link(link) for person in people))
    assert sorted(answer.status for answer in answers) == [303, 403, 403, 403]
    assert sum(person.is_signed_in for person in people) == 1
    assert (await Person(api).follow_link(link)).status == 403


async def test_opening_a_link_does_not_use_it(api: Api) -> None:
    link = await invite(api)
    for _ in range(3):
        page = await Person(api).get(link.removeprefix(ORIGIN))
        assert page.status == 200
        assert "dee@shop.test" not in words(page)
    assert (await Person(api).follow_link(link)).status == 303


async def test_a_link_works_for_72_hours(api: Api) -> None:
    first, second = await invite(api), await invite(api, "eve@shop.test")
    await api.world.move_clock(72 * _HOUR_S - 60)
    assert (await Person(api).follow_link(first)).status == 303
    await api.world.move_clock(72 * _HOUR_S + 60)
    assert (await Person(api).follow_link(second)).status == 403


async def test_a_new_link_replaces_the_previous_link(api: Api) -> None:
    first, second = await invite(api), await invite(api, "DEE@shop.test")
    assert (await Person(api).follow_link(first)).status == 403
    assert (await Person(api).follow_link(second)).status == 303
    [row] = await api.world.rows("SELECT count(*) AS n FROM member")
    assert row["n"] == 1


async def test_a_removed_member_cannot_sign_in_by_link_or_passkey(person: Person) -> None:
    link = await invite(person.api, "developer@shop.test")
    operation = RemoveMember(merchant_id=person.api.world.merchant_id, email="developer@shop.test")
    await person.api.world.perform(operation)
    assert (await person.follow_link(link)).status == 403
    assert (await person.sign_in()).status == 403


async def test_a_member_can_be_removed_while_signing_in(person: Person) -> None:
    world = person.api.world
    [passkey] = await world.rows("SELECT credential_id, clock() AS now FROM member_passkey")
    use = PasskeyUse(
        credential_id=passkey["credential_id"], sign_count=1_000, challenged_at=passkey["now"]
    )
    async with world.database.transaction() as tx:
        member_id = await member_store.use_passkey(tx, use)
        assert member_id is not None
        operation = RemoveMember(merchant_id=world.merchant_id, email="developer@shop.test")
        removal = asyncio.create_task(world.perform(operation))
        while not await world.rows(_BLOCKED):
            await asyncio.sleep(0.01)
        await session_store.add(tx, tx.id_generator.new_id(), member_id, bytes(32))
    await removal
    assert await world.rows("SELECT FROM member") == []


_BLOCKED = """
    SELECT
    FROM pg_locks l
    JOIN pg_stat_activity a USING (pid)
    WHERE NOT l.granted AND a.datname = current_database()
"""


#: Changes that make the browser's statement about a sign-in invalid.
_INVALID_CLAIMS: dict[str, dict[str, Any]] = {
    "another site": {"origin": "http://pay.test.evil.example"},
    "another port": {"origin": "http://pay.test:81"},
    "another scheme": {"origin": "https://pay.test"},
    "a frame of another site": {"crossOrigin": True},
    "a registration": {"type": "webauthn.create"},
    "an unknown challenge": {"challenge": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
}


@pytest.mark.parametrize("claim", _INVALID_CLAIMS)
async def test_a_passkey_response_for_another_context_is_rejected(
    person: Person, claim: str
) -> None:
    assert (await person.sign_in(**_INVALID_CLAIMS[claim])).status == 403
    assert not person.is_signed_in
    assert (await person.sign_in()).status == 303


async def test_the_person_must_be_verified_by_the_device(person: Person) -> None:
    person.key.flags = PRESENT
    assert (await person.sign_in()).status == 403
    assert not person.is_signed_in


async def test_a_passkey_can_be_added_only_at_our_origin_and_with_verification(api: Api) -> None:
    person = await member(api)
    assert (await person.add_passkey(origin="http://evil.example")).status == 400
    assert (await person.add_passkey(type="webauthn.get")).status == 400
    person.key.flags = PRESENT
    assert (await person.add_passkey()).status == 400
    assert await api.world.rows("SELECT FROM member_passkey") == []


async def test_a_cloned_passkey_is_rejected_by_its_signature_counter(
    person: Person,
) -> None:
    person.key.count = 5
    assert (await person.sign_in()).status == 303
    await person.sign_out()
    for count in (0, 4, 5):
        person.key.count = count
        assert (await person.sign_in()).status == 403
    person.key.count = 6
    assert (await person.sign_in()).status == 303


async def test_a_passkey_response_cannot_be_replayed(person: Person) -> None:
    """A replay fails even in the same browser with its earlier cookies."""
    token = form_token(await person.get(SIGN_IN))
    before = dict(person.cookies)
    credential = person.key.sign_in(await person.challenge())
    assert (await person.send_sign_in(credential, token)).status == 303
    person.cookies = before
    await _check_refused(person, credential, token)


async def test_a_challenge_of_another_browser_is_rejected(person: Person) -> None:
    stranger = Person(person.api)
    await stranger.get(SIGN_IN)
    await _check_refused(person, person.key.sign_in(await stranger.challenge()))


async def test_a_challenge_to_add_a_passkey_cannot_be_used_to_sign_in(person: Person) -> None:
    colleague = await member(person.api, MemberRole.FINANCE)
    options = (await colleague.get("/merchant/passkeys/options")).json
    await _check_refused(person, person.key.sign_in(options))


async def test_a_challenge_expires_after_ten_minutes(person: Person) -> None:
    for minutes, works in ((11, False), (9, True)):
        await person.api.world.move_clock(0)
        token = form_token(await person.get(SIGN_IN))
        credential = person.key.sign_in(await person.challenge())
        await person.api.world.move_clock(minutes * 60)
        answer = await person.send_sign_in(credential, token)
        assert (answer.status == 303) is works


async def test_a_signature_of_another_key_is_rejected(person: Person) -> None:
    attacker = await member(person.api, MemberRole.FINANCE)
    attacker.key.credential_id = person.key.credential_id
    attacker.key.user = person.key.user
    await attacker.sign_out()
    assert (await attacker.sign_in()).status == 403


async def test_a_passkey_response_must_name_its_member(person: Person) -> None:
    person.key.user = b"sixteen bytes---"
    assert (await person.sign_in()).status == 403


_CORRUPTIONS: list[Callable[[str], str]] = [
    lambda _: "",
    lambda _: "{}",
    lambda _: "[]",
    lambda _: "null",
    lambda _: "\x00",
    lambda _: "[" * 5_000,
    lambda text: text[:-1],
    lambda text: text.replace('"rawId": "', '"rawId": "A'),
    lambda text: text.replace('"signature": "', '"signature": "A'),
    lambda text: text.replace('"authenticatorData": "', '"authenticatorData": "AAAA'),
    lambda text: text.replace('"clientDataJSON": "', '"clientDataJSON": "AAAA'),
    lambda text: text.replace("authenticatorData", "x"),
    lambda text: text.replace('"response": {', '"response": 7, "x": {'),
]


async def test_malformed_passkey_responses_are_rejected(person: Person) -> None:
    token = form_token(await person.get(SIGN_IN))
    valid = person.key.sign_in(await person.challenge())
    for corrupt in _CORRUPTIONS:
        await _check_refused(person, corrupt(valid), token)
    for corrupt in _CORRUPTIONS[:7]:
        colleague = await member(person.api, email="other@shop.test")
        credential = corrupt(
            colleague.key.register((await colleague.get("/merchant/passkeys/options")).json)
        )
        assert (await colleague.post("/merchant/passkeys", credential=credential)).status == 400


async def test_the_sign_in_page_does_not_reveal_members_or_passkeys(
    person: Person, api: Api
) -> None:
    """The page is the same whether or not a member has a passkey."""
    await person.get(SIGN_IN)
    options = await person.challenge()
    assert set(options) <= {"challenge", "rpId", "userVerification", "timeout"}
    assert options["userVerification"] == "required"
    stranger = Person(api)
    page = words(await stranger.get(SIGN_IN))
    assert page == words(await person.get(SIGN_IN))
    assert "@" not in page


async def test_unsafe_redirects_after_signing_in_are_ignored(person: Person) -> None:
    for following in (
        "https://evil.example/merchant/",
        "//evil.example/merchant/payments",
        "/c/cs_0123456789abcdef",
        "/merchant/\\evil.example",
        "/merchantx",
        "/merchant/" + "x" * 600,
        "/merchant/\r\nSet-Cookie: x=y",
    ):
        answer = await person.sign_in(following)
        assert answer.headers["Location"] == "/merchant/overview"
        await person.sign_out()


async def test_a_protected_page_redirects_to_the_sign_in_page_and_back(person: Person) -> None:
    answer = await person.get("/merchant/payments?status=PAID")
    assert answer.status == 303
    assert answer.headers["Location"] == (
        "/merchant/sign-in?next=%2Fmerchant%2Fpayments%3Fstatus%3DPAID"
    )
    page = await person.get(answer.headers["Location"])
    assert 'value="/merchant/payments?status=PAID"' in page.body.decode()
    assert SESSION not in person.cookies
