"""Sessions of the console: sign-in, cookies, expiry and rate limits."""

import asyncio
from uuid import UUID

import pytest

from payintent.core import access as api_key
from payintent.core.access import Role
from payintent.operators.operations import ReplaceToken, RevokeOperatorToken, SetRole
from payintent.runtime.settings import Settings
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.support.world import ACTOR, Api, World

COOKIE = "payintent-console"
HOURS = 3600


async def _is_signed_in(visitor: Visitor) -> bool:
    answer = await visitor.get("/sessions")
    assert answer.status in {200, 303}
    return answer.status == 200


async def test_a_page_without_a_session_redirects_to_the_sign_in_page_and_back(
    operator: Api, world: World
) -> None:
    visitor = Visitor(operator)
    answer = await visitor.get("/operations?of=tax")
    assert (answer.status, answer.headers["Location"]) == (
        303,
        "/sign-in?next=%2Foperations%3Fof%3Dtax",
    )
    token = await world.operator_token()
    answer = await visitor.sign_in(token, next="/operations?of=tax")
    assert (answer.status, answer.headers["Location"]) == (303, "/operations?of=tax")
    assert "ann admin" in words(await visitor.get("/operations"))


async def test_the_cookie_is_not_available_to_scripts_or_other_sites(
    operator: Api, world: World
) -> None:
    answer = await Visitor(operator).sign_in(await world.operator_token())
    [cookie] = answer.headers.getall("Set-Cookie")
    name, *attributes = cookie.split("; ")
    assert name.startswith(f"{COOKIE}=")
    assert {attribute.lower() for attribute in attributes} == {
        "httponly",
        "max-age=43200",
        "path=/",
        "samesite=strict",
    }
    [row] = await world.rows("SELECT * FROM console_session")
    secret = name.partition(".")[2]
    assert not any(secret in str(value) for value in dict(row).values())


@pytest.mark.parametrize("kind", ["missing", "malformed", "unknown", "merchants", "wrong_secret"])
async def test_an_invalid_operator_token_cannot_sign_in(
    operator: Api, world: World, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    token = await world.operator_token()
    public_id = "A" * 8 if kind == "unknown" else token.split("_")[1]
    wrong_token = api_key.make_api_key(api_key.OPERATOR, public_id, "B" * api_key.SECRET_CHARS).text
    entered = {"missing": "", "malformed": "op_x", "merchants": world.api_key}.get(
        kind, wrong_token
    )
    visitor = Visitor(operator)
    answer = await visitor.sign_in(entered)
    assert answer.status == 401
    assert "This operator token is not valid." in words(answer)
    assert (not entered) or entered not in answer.body.decode()
    assert not await _is_signed_in(visitor)
    assert not await world.rows("SELECT id FROM console_session")
    logged = capsys.readouterr().out
    reason = "malformed" if kind == "merchants" else kind
    assert f"reason={reason}" in logged
    assert (not entered) or entered not in logged


class TestSlowedDown:
    """The limit on failed authentications is low."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        limits = {"failed_logins_per_address_per_s": 1, "failed_logins_per_address_burst": 3}
        return settings.model_copy(update=limits)

    async def test_failed_sign_ins_are_rate_limited_without_affecting_open_sessions(
        self, operator: Api, capsys: pytest.CaptureFixture[str]
    ) -> None:
        visitor = await sign_in_as(operator)
        answers = [await Visitor(operator).sign_in("op_x") for _ in range(20)]
        assert {answer.status for answer in answers} == {401, 429}
        limited = next(answer for answer in answers if answer.status == 429)
        assert "Too many failed attempts" in words(limited)
        assert int(limited.headers["Retry-After"]) > 0
        assert "authentication_slowed" in capsys.readouterr().out
        assert await _is_signed_in(visitor)
        await sign_in_as(operator, "bob")  # a valid token is accepted even if it was never used


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        ".",
        f"{UUID(int=7)}.{'A' * 43}",
        "not-a-uuid.secret",
        f"{UUID(int=7)}." + "é",
        "A" * 5_000,
    ],
)
async def test_an_invalid_cookie_is_not_accepted(operator: Api, value: str) -> None:
    visitor = Visitor(operator, {COOKIE: value})
    answer = await visitor.get("/operations")
    assert answer.status == 303


async def test_a_session_cookie_with_a_wrong_secret_is_rejected_and_logged(
    operator: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    visitor = await sign_in_as(operator)
    session_id, _, secret = visitor.cookies[COOKIE].partition(".")
    wrong_letter = "A" if secret[0] != "A" else "B"
    thief = Visitor(operator, {COOKIE: f"{session_id}.{wrong_letter}{secret[1:]}"})
    assert not await _is_signed_in(thief)
    assert "authentication_failed" in capsys.readouterr().out
    assert await _is_signed_in(visitor)


async def test_a_session_ends_after_twelve_hours_even_if_it_is_used(
    operator: Api, world: World
) -> None:
    visitor = await sign_in_as(operator)
    for hour in range(1, 12):
        await world.move_clock(hour * HOURS)
        assert await _is_signed_in(visitor)
    await world.move_clock(12 * HOURS + 1)
    assert not await _is_signed_in(visitor)
    assert COOKIE not in visitor.cookies


async def test_revoking_a_token_ends_its_sessions_immediately(operator: Api, world: World) -> None:
    token = await world.operator_token()
    visitor = Visitor(operator)
    await visitor.sign_in(token)
    assert await _is_signed_in(visitor)
    await world.perform(RevokeOperatorToken(public_id=token.split("_")[1]))
    assert not await _is_signed_in(visitor)


async def test_the_sessions_of_an_expired_token_end_immediately(
    operator: Api, world: World
) -> None:
    token = await world.operator_token()
    visitor = Visitor(operator)
    await world.rows("UPDATE operator_token SET expires_at = clock() + interval '1 hour'")
    await visitor.sign_in(token)
    await world.rows(
        "UPDATE console_session "
        "SET created_at = clock(), expires_at = clock() + interval '12 hours'"
    )
    assert await _is_signed_in(visitor)
    await world.move_clock(HOURS + 1)
    assert not await _is_signed_in(visitor)


async def test_a_session_does_not_outlive_its_token(operator: Api, world: World) -> None:
    token = await world.operator_token()
    await world.rows("UPDATE operator_token SET expires_at = clock() + interval '1 hour'")
    await Visitor(operator).sign_in(token)
    [row] = await world.rows(
        "SELECT s.expires_at = t.expires_at AS same FROM console_session s, operator_token t"
    )
    assert row["same"]


async def test_replacing_a_token_ends_its_sessions_immediately(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator)
    actor = type(ACTOR)("ann", "it is tested", Role.ADMIN)
    await world.service.run_operation(ReplaceToken(), actor)
    assert not await _is_signed_in(visitor)


async def test_a_changed_role_applies_from_the_next_page(operator: Api, world: World) -> None:
    token = await world.operator_token()
    visitor = Visitor(operator)
    await visitor.sign_in(token)
    await world.perform(SetRole(public_id=token.split("_")[1], role=Role.VIEWER))
    assert "ann viewer" in words(await visitor.get("/sessions"))


async def test_the_previous_session_secret_stays_valid_for_a_minute_after_its_rotation(
    operator: Api, world: World
) -> None:
    visitor = await sign_in_as(operator)
    before = dict(visitor.cookies)
    await world.move_clock(16 * 60)
    answers = await asyncio.gather(
        *(Visitor(operator, dict(before)).get("/sessions") for _ in range(4))
    )
    assert [answer.status for answer in answers] == [200] * 4
    [cookie] = [line for answer in answers for line in answer.headers.getall("Set-Cookie", [])]
    visitor.cookies[COOKIE] = cookie.partition(";")[0].partition("=")[2]
    assert visitor.cookies != before
    assert await _is_signed_in(visitor)
    assert await _is_signed_in(Visitor(operator, dict(before)))


async def test_reuse_of_an_old_session_secret_ends_the_session(
    operator: Api, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    visitor = await sign_in_as(operator)
    thief = Visitor(operator, dict(visitor.cookies))
    await world.move_clock(16 * 60)
    assert await _is_signed_in(visitor)
    await world.move_clock(18 * 60)
    assert not await _is_signed_in(thief)
    assert "console_session_reused" in capsys.readouterr().out
    assert not await _is_signed_in(visitor)


async def test_signing_out_also_ends_copies_of_the_session(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    copy = Visitor(operator, dict(visitor.cookies))
    answer = await visitor.post("/sign-out")
    assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
    assert COOKIE not in visitor.cookies
    assert not await _is_signed_in(copy)


async def test_signing_in_again_ends_the_previous_session(operator: Api, world: World) -> None:
    visitor = await sign_in_as(operator)
    copy = Visitor(operator, dict(visitor.cookies))
    await visitor.sign_in(await world.operator_token("bob"))
    assert "bob admin" in words(await visitor.get("/sessions"))
    assert not await _is_signed_in(copy)


async def test_operators_can_list_and_end_only_their_own_sessions(
    operator: Api, world: World
) -> None:
    token = await world.operator_token()
    first, second = Visitor(operator), Visitor(operator)
    await first.sign_in(token)
    await second.sign_in(token)
    stranger = await sign_in_as(operator, "bob")
    ids = [visitor.cookies[COOKIE].partition(".")[0] for visitor in (first, second, stranger)]
    page = (await first.get("/sessions")).body.decode()
    assert f"/sessions/{ids[1]}/end" in page
    assert ids[2] not in page
    assert (await stranger.post(f"/sessions/{ids[1]}/end")).status == 404
    assert (await stranger.post("/sessions/x/end")).status == 404
    assert await _is_signed_in(second)
    assert (await first.post(f"/sessions/{ids[1]}/end")).status == 303
    assert not await _is_signed_in(second)
    assert await _is_signed_in(first)


async def test_a_sign_in_deletes_sessions_that_ended_a_week_ago(
    operator: Api, world: World
) -> None:
    token = await world.operator_token()
    await Visitor(operator).sign_in(token)
    await world.move_clock(8 * 24 * HOURS)
    await Visitor(operator).sign_in(token)
    [row] = await world.rows("SELECT count(*) AS n FROM console_session")
    assert row["n"] == 1
