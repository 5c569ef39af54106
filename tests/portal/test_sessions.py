"""Sessions of members: cookies expire after twelve hours, are renewed, and are not stored."""

from payintent.http.pages.forms import SignInCookie
from payintent.members.model import MemberRole
from payintent.members.operations import RemoveMember
from payintent.portal.visits import make_session_cookie
from payintent.runtime.settings import Settings
from tests.portal.member_browser import SESSION, SIGN_IN, Person, form_token, invite, member
from tests.support.world import Api

_HOUR_S = 3_600
_PAGE = "/merchant/payments"


async def _has_access(person: Person, **cookies: str) -> bool:
    browser = Person(person.api)
    browser.cookies = cookies or dict(person.cookies)
    return (await browser.get(_PAGE)).status == 200


async def test_a_session_expires_after_twelve_hours_even_if_it_is_used(api: Api) -> None:
    person = await member(api)
    for hours in range(1, 12):
        await api.world.move_clock(hours * _HOUR_S + 60)
        assert (await person.get(_PAGE)).status == 200
    await api.world.move_clock(12 * _HOUR_S + 60)
    assert (await person.get(_PAGE)).status == 303


async def test_a_session_cookie_is_replaced_every_hour_with_a_short_overlap(api: Api) -> None:
    person = await member(api)
    first = person.cookies[SESSION]
    await person.get(_PAGE)
    assert person.cookies[SESSION] == first
    await api.world.move_clock(_HOUR_S + 10)
    await person.get(_PAGE)
    assert person.cookies[SESSION] != first
    # The old cookie still works for requests that were in flight when it was replaced.
    assert await _has_access(person, **{SESSION: first})
    await api.world.move_clock(_HOUR_S + 80)
    assert not await _has_access(person, **{SESSION: first})
    assert await _has_access(person)


async def test_a_form_remains_valid_after_the_cookie_is_replaced(api: Api) -> None:
    person = await member(api)
    token = await person.token()
    await api.world.move_clock(_HOUR_S + 10)
    await person.get(_PAGE)
    assert (await person.post("/merchant/sign-out", token)).headers["Location"] == SIGN_IN


async def test_signing_out_ends_the_current_session_or_all_sessions(api: Api) -> None:
    people = [await member(api) for _ in range(3)]
    cookies = [dict(person.cookies) for person in people]
    await people[0].sign_out()
    assert [await _has_access(people[0], **jar) for jar in cookies] == [False, True, True]
    await people[1].post("/merchant/sign-out", everywhere="1")
    assert [await _has_access(people[0], **jar) for jar in cookies] == [False, False, False]


async def test_a_member_has_at_most_ten_sessions(api: Api) -> None:
    people = [await member(api) for _ in range(11)]
    assert [await _has_access(person) for person in people] == [False] + 10 * [True]


async def test_removing_a_member_ends_their_sessions_immediately(api: Api) -> None:
    person, colleague = await member(api), await member(api, MemberRole.FINANCE)
    email = "developer@shop.test"
    await api.world.perform(RemoveMember(merchant_id=api.world.merchant_id, email=email))
    assert (await person.get(_PAGE)).status == 303
    assert (await colleague.get(_PAGE)).status == 200


async def test_signing_in_replaces_an_existing_session_cookie(api: Api) -> None:
    person = Person(api)
    person.cookies[SESSION] = "A" * 43
    assert (await person.follow_link(await invite(api))).status == 303
    assert person.cookies[SESSION] != "A" * 43


async def test_session_and_link_secrets_are_not_stored_in_plain_text(api: Api) -> None:
    link = await invite(api, "eve@shop.test")
    person = await member(api)
    secrets = [person.cookies[SESSION], link.rpartition("/")[2]]
    for table in ("member", "member_link", "member_session", "audit"):
        stored = str([list(row.values()) for row in await api.world.rows(f"SELECT * FROM {table}")])
        assert not any(secret in stored for secret in secrets), table


async def test_cookies_are_http_only_and_same_site(api: Api) -> None:
    page = await Person(api).get(SIGN_IN)
    [visitor] = page.headers.getall("Set-Cookie")
    path = (await invite(api)).removeprefix("http://pay.test")
    person = Person(api)
    token = form_token(await person.get(path))
    lines = (await person.post(path, token)).headers.getall("Set-Cookie")
    for line in (visitor, *lines):
        kinds = {part.strip().lower() for part in line.split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/"} <= kinds
        assert not any(kind.startswith("domain") for kind in kinds)


def test_a_session_cookie_is_bound_to_its_host_over_https(any_settings: Settings) -> None:
    base = {"portal_base": "https://pay.example.com/merchant"}
    cookie = make_session_cookie(any_settings.model_copy(update=base))
    assert cookie == SignInCookie("payintent_merchant", is_secure=True, max_age_s=12 * _HOUR_S)
    assert cookie.name == "__Host-payintent_merchant"
