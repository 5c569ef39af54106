"""A form is accepted only if it comes from a page of the same session and origin."""

import pytest

from payintent.runtime.settings import Settings
from tests.console.operator_browser import Visitor, sign_in_as, words
from tests.support.world import Api, World

pytestmark = pytest.mark.full

FOREIGN_ORIGIN = "https://evil.example"


async def test_a_form_with_the_token_of_its_session_is_accepted(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    assert (await visitor.post("/sign-out")).status == 303


@pytest.mark.parametrize("token", ["", "x", "é", "0" * 64])
async def test_a_form_without_the_token_of_its_session_is_refused(
    operator: Api, token: str
) -> None:
    visitor = await sign_in_as(operator)
    answer = await visitor.post("/sign-out", csrf=token)
    assert answer.status == 403
    assert "the form was opened in a different session" in words(answer)
    assert (await visitor.get("/sessions")).status == 200


async def test_a_form_with_the_token_of_a_different_session_is_refused(operator: Api) -> None:
    ann, bob = await sign_in_as(operator), await sign_in_as(operator, "bob")
    assert (await ann.post("/sign-out", csrf=bob.csrf)).status == 403
    assert (await ann.get("/sessions")).status == 200


@pytest.mark.parametrize("origin", [FOREIGN_ORIGIN, "null", "", "http://127.0.0.1:1", None])
async def test_a_form_from_a_foreign_origin_is_refused(operator: Api, origin: str | None) -> None:
    visitor = await sign_in_as(operator)
    headers = {} if origin is None else {"Origin": origin}
    for path, fields in (("/sign-out", {}), ("/sign-in", {"token": "op_x"})):
        answer = await visitor.send_form(path, {"csrf": visitor.csrf} | fields, **headers)
        assert answer.status == 403
        assert "from another site" in words(answer)
    assert (await visitor.get("/sessions")).status == 200


async def test_a_form_without_a_cookie_redirects_to_the_sign_in(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    stranger = Visitor(operator, csrf=visitor.csrf)
    answer = await stranger.post("/sign-out")
    assert (answer.status, answer.headers["Location"]) == (303, "/sign-in")
    assert (await visitor.get("/sessions")).status == 200


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{}", 400),
        ("text/plain", b"csrf=x", 400),
        ("application/x-www-form-urlencoded", b"csrf=%ff", 400),
        ("application/x-www-form-urlencoded", b"a=1&" * 300, 400),
    ],
)
async def test_a_malformed_form_is_refused_with_an_error_page(
    operator: Api, content_type: str, body: bytes, status: int
) -> None:
    headers = {"Origin": operator.base, "Content-Type": content_type}
    answer = await operator.send("POST", "/sign-in", data=body, headers=headers)
    assert answer.status == status
    assert answer.headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize(
    "onward",
    ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "", "/sign-in", "/\n/x"],
)
async def test_a_sign_in_never_redirects_to_a_foreign_site(
    operator: Api, world: World, onward: str
) -> None:
    answer = await Visitor(operator).sign_in(await world.operator_token(), next=onward)
    assert (answer.status, answer.headers["Location"]) == (303, "/")


async def test_a_link_from_a_foreign_site_is_opened_through_our_own_page(operator: Api) -> None:
    path = "/sign-in?next=%2Foperations"
    answer = await Visitor(operator).get(path, Sec_Fetch_Site="cross-site")
    assert b'content="0; url=/operations"' in answer.body
    assert b'type="password"' in (await Visitor(operator).get(path)).body


async def test_a_link_from_a_foreign_site_does_not_end_a_session(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    # A browser does not send the strict cookie, but would apply a response that deletes it.
    answer = await Visitor(operator).get("/operations", Sec_Fetch_Site="cross-site")
    assert answer.headers["Location"] == "/sign-in?next=%2Foperations"
    assert "Set-Cookie" not in answer.headers
    assert (await visitor.get("/operations")).status == 200


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.5:8081", "localhost.evil.example"])
async def test_without_tls_the_console_is_available_only_at_a_loopback_address(
    operator: Api, world: World, host: str
) -> None:
    token = await world.operator_token()
    for method, path in (("GET", "/"), ("GET", "/sign-in"), ("GET", "/operations")):
        answer = await operator.send(method, path, headers={"Host": host})
        assert answer.status == 403, path
    fields = {"token": token}
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert (await operator.send("POST", "/sign-in", data=fields, headers=headers)).status == 403
    assert not await world.rows("SELECT id FROM console_session")


async def test_every_page_has_the_security_headers(operator: Api) -> None:
    visitor = await sign_in_as(operator)
    pages = [await visitor.get(path) for path in ("/sessions", "/operations", "/sign-in")]
    pages.append(await visitor.post("/sign-out", csrf=""))
    for page in pages:
        assert page.headers["Cache-Control"] == "no-store"
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


class TestBehindTls:
    """The console is behind a proxy that terminates TLS."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"console_base": "https://console.example.com"})

    async def test_the_cookie_is_sent_only_over_tls_to_this_host(
        self, operator: Api, world: World
    ) -> None:
        headers = {"Host": "console.example.com", "Origin": "https://console.example.com"}
        fields = {"token": await world.operator_token()}
        answer = await operator.send("POST", "/sign-in", data=fields, headers=headers)
        assert answer.status == 303
        [cookie] = answer.headers.getall("Set-Cookie")
        assert cookie.startswith("__Host-payintent-console=")
        assert "; Secure" in cookie
        assert "; Path=/" in cookie
        assert "domain" not in cookie.lower()

    async def test_the_console_is_not_available_at_any_other_address(self, operator: Api) -> None:
        answer = await operator.send("GET", "/sign-in")
        assert answer.status == 403
        assert "open the console at https://console.example.com" in words(answer)
