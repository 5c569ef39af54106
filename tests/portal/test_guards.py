"""Protections of sign-in and responses: throttling, logs without secrets, headers, CSV cells."""

import csv
from io import StringIO
from urllib.parse import urlsplit

import pytest
from starlette.routing import Route

from payintent.core.ids import PAYMENT_LINK, format_id
from payintent.members.model import MemberRole
from payintent.portal.routes import PORTAL_ROUTES
from payintent.runtime.settings import Settings
from tests.payment_links.link_setup import make_link
from tests.portal.arrange import close_a_day
from tests.portal.member_browser import SIGN_IN, Person, form_token, invite, member
from tests.support.world import Answer, Api

_CACHED = "/merchant/static/"
_FORMULA = ("=", "+", "@", "\t", "\r")


class TestThrottling:
    """The limit on failed sign-ins, which is disabled in other tests."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        limits = {"failed_logins_per_address_per_s": 1, "failed_logins_per_address_burst": 3}
        return settings.model_copy(update=limits)

    @pytest.mark.parametrize("method", ["link", "passkey"])
    async def test_failed_sign_ins_throttle_their_address_without_ending_sessions(
        self, api: Api, method: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        signed_in = await member(api)
        stranger = Person(api)
        address = "/merchant/link/" + "A" * 43 if method == "link" else SIGN_IN
        token = form_token(await stranger.get(address))
        answers = [await stranger.post(address, token, credential="{}") for _ in range(20)]
        assert {answer.status for answer in answers} == {403, 429}
        refused = next(answer for answer in answers if answer.status == 429)
        assert int(refused.headers["Retry-After"]) > 0
        output = capsys.readouterr().out
        assert "authentication_failed" in output
        assert "authentication_slowed" in output
        assert "holder=member" in output
        assert (await signed_in.get("/merchant/payments")).status == 200
        assert (await member(api)).is_signed_in  # an unused link still works


async def test_logs_do_not_contain_the_secret_of_a_link(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    link = await invite(api)
    secret = link.rpartition("/")[2]
    path = urlsplit(link).path
    person = Person(api)
    assert (await person.follow_link(link)).status == 303
    stranger = Person(api)
    token = form_token(await stranger.get(path))
    assert (await stranger.post(path, token)).status == 403  # the link was already used
    assert (await stranger.post(path, "x")).status == 403
    assert (await stranger.get(f"{path}/more")).status == 404
    await api.world.rows("ALTER TABLE member_link RENAME TO member_link_away")
    assert (await stranger.post(path, token)).status in {500, 503}
    captured = capsys.readouterr()
    assert "member_signed_in" in captured.out
    assert secret not in captured.out + captured.err


async def test_every_response_has_strict_cache_referrer_and_content_policies(
    api: Api,
) -> None:
    people = [Person(api), *[await member(api, role) for role in MemberRole]]
    parameters = {
        "payment_id": (await api.create()).json["id"],
        "statement_id": await close_a_day(api.world),
        "event_id": "00000000-0000-7000-8000-000000000001",
        "link_id": format_id(PAYMENT_LINK, (await make_link(api.world)).id),
        "token": "A" * 43,
    }
    paths = [
        route.path.format_map(parameters)
        for route in PORTAL_ROUTES
        if isinstance(route, Route) and "GET" in (route.methods or ())
        if not route.path.startswith(_CACHED)
    ]
    assert len(paths) > 15
    problems_by_path = {
        f"{path} {answer.status}": problems
        for path in paths
        for person in people
        for answer in [await person.get(path)]
        if (problems := _find_header_problems(answer))
    }
    assert problems_by_path == {}


def _find_header_problems(answer: Answer) -> list[str]:
    headers, policy = answer.headers, answer.headers.get("Content-Security-Policy", "")
    problems = [
        name
        for name, value in {
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }.items()
        if headers.getall(name, []) != [value]
    ]
    if answer.body and headers.get("Content-Type", "").startswith("text/html"):
        directives = ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'")
        problems += [part for part in directives if part not in policy]
        problems += [word for word in ("unsafe", "*") if word in policy]
    return problems


async def test_statement_cells_cannot_be_spreadsheet_formulas(api: Api) -> None:
    """A cell may start with a minus only if it is a number."""
    person = await member(api, MemberRole.FINANCE)
    statement_id = await close_a_day(api.world, adjustments=2)
    answer = await person.get(f"/merchant/statements/{statement_id}/lines.csv")
    [head, *lines] = csv.reader(StringIO(answer.body.decode(), newline=""))
    assert len(lines) == 2
    for cell in [cell for line in [head, *lines] for cell in line]:
        assert not cell.startswith(_FORMULA)
        if cell.startswith("-"):
            float(cell)


async def test_an_internal_error_is_shown_as_a_page(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("planted")

    person = await member(api)
    monkeypatch.setattr("payintent.portal.lists.read_id_cursor", fail)
    page = await person.get("/merchant/refunds")
    assert (page.status, page.headers["Content-Type"]) == (500, "text/html; charset=utf-8")
    assert b"Something went wrong" in page.body
    assert b"planted" not in page.body
