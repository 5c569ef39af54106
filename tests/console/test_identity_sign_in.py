"""Sign-in to the console with OpenID Connect, even if the provider returns false data."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import REGISTRY
from pydantic import SecretStr

from payintent.approvals.operations import Approve
from payintent.core.access import Role
from payintent.core.errors import RefusedError
from payintent.operators.operation import Actor
from payintent.operators.operations import (
    BlockIdentity,
    IssueOperatorToken,
    ListIdentities,
    ReplaceToken,
    UnblockIdentity,
)
from payintent.runtime.settings import Settings
from tests.console.operator_browser import Visitor, words
from tests.support.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    identity_provider,
    query_of,
)
from tests.support.world import Answer, Api, World

pytestmark = pytest.mark.full

HOURS = 3600
ROLES = "payments-admins=admin,payments-finance=finance,staff=viewer"


@pytest.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    async with identity_provider() as oidc_provider:
        yield oidc_provider


@pytest.fixture
def settings(settings: Settings, provider: IdentityProvider) -> Settings:
    return settings.model_copy(
        update={
            "oidc_issuer": provider.issuer,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": SecretStr(CLIENT_SECRET),
            "oidc_roles": ROLES,
        }
    )


async def _get_callback_path(visitor: Visitor, page: str = "/") -> str:
    """Start a sign-in at the provider; return the path of the callback."""
    response = await visitor.get(f"/sign-in/oidc?next={page}")
    assert response.status == 303, words(response)
    async with visitor.api._client.get(
        response.headers["Location"], allow_redirects=False
    ) as redirect:
        assert redirect.status == 303
        return redirect.headers["Location"].removeprefix(visitor.api.base)


async def _sign_in(visitor: Visitor, page: str = "/") -> Answer:
    return await visitor.get(await _get_callback_path(visitor, page))


async def _sign_in_visitor(api: Api) -> Visitor:
    visitor = Visitor(api)
    answer = await _sign_in(visitor)
    assert answer.status == 200, words(answer)
    return visitor


async def _is_signed_in(visitor: Visitor) -> bool:
    return (await visitor.get("/sessions")).status == 200


def _count_failures(reason: str) -> float:
    labels = {"holder": "operator", "reason": f"oidc_{reason}"}
    return REGISTRY.get_sample_value("payintent_authentication_failures_total", labels) or 0.0


async def test_an_operator_signs_in_with_the_role_from_the_providers_claims(
    operator: Api, world: World
) -> None:
    visitor = Visitor(operator)
    assert "Sign in with 127.0.0.1" in words(await visitor.get("/sign-in?next=/audit"))
    answer = await _sign_in(visitor, "/audit")
    assert answer.status == 200
    assert 'content="0; url=/audit"' in answer.body.decode()
    assert list(visitor.cookies) == ["payintent-console"]
    assert "oidc:ada@example.com/" in words(await visitor.get("/audit"))
    [identity] = await world.perform(ListIdentities())
    assert (identity.role, identity.subject) == (Role.ADMIN, "u-1")
    [entry] = await world.rows("SELECT * FROM audit WHERE action = 'operator.sign-in'")
    assert entry["who"] == identity.name
    assert json.loads(entry["details"])["subject"] == "u-1"


async def test_es256_signatures_are_accepted(operator: Api, provider: IdentityProvider) -> None:
    provider.algorithm = "ES256"
    assert await _is_signed_in(await _sign_in_visitor(operator))


async def test_the_session_cookie_is_strict_and_the_sign_in_cookie_is_lax(
    operator: Api,
) -> None:
    visitor = Visitor(operator)
    response = await visitor.get("/sign-in/oidc")
    sign_in_cookie = response.headers["Set-Cookie"].lower()
    assert "samesite=lax" in sign_in_cookie
    assert "httponly" in sign_in_cookie
    assert "max-age=600" in sign_in_cookie
    callback_response = await visitor.get(await _get_callback_path(visitor))
    session, deleted = sorted(
        callback_response.headers.getall("Set-Cookie"), key=lambda cookie: "Max-Age=0" in cookie
    )
    assert "samesite=strict" in session.lower()
    assert "httponly" in session.lower()
    assert deleted.startswith("payintent-console-sign-in=")


def _claim(name: str, value: Any) -> dict[str, Any]:
    def change(claims: dict[str, Any]) -> None:
        claims[name] = value(claims) if callable(value) else value
        if claims[name] is None:
            del claims[name]

    return {"lie": change}


FALSE_RESPONSES: list[tuple[str, dict[str, Any]]] = [
    ("nonce", _claim("nonce", "another")),
    ("nonce", _claim("nonce", None)),
    ("nonce", _claim("nonce", 7)),
    ("audience", _claim("aud", "another-client")),
    ("audience", _claim("aud", None)),
    ("audience", _claim("aud", [CLIENT_ID, "another-client"])),
    ("audience", _claim("azp", "another-client")),
    ("issuer", _claim("iss", "https://login.example.com")),
    ("issuer", _claim("iss", lambda claims: claims["iss"] + "/")),
    ("issuer", {"answer": {"iss": "https://login.example.com"}}),
    ("expired", _claim("exp", lambda _: time.time() - 90)),
    ("time", _claim("exp", None)),
    ("time", _claim("exp", "2099")),
    ("time", _claim("iat", None)),
    ("time", _claim("iat", lambda _: time.time() + 300)),
    ("time", _claim("nbf", lambda _: time.time() + 300)),
    ("subject", _claim("sub", None)),
    ("subject", _claim("sub", "")),
    ("subject", _claim("sub", "x" * 256)),
    ("algorithm", {"algorithm": "none"}),
    ("algorithm", {"algorithm": "HS256"}),
    ("algorithm", {"head": {"alg": "RS512"}}),
    ("algorithm", {"head": {"alg": ["RS256"]}}),
    ("signature", {"head": {"alg": "RS256", "crit": ["x"], "x": 1}}),
    ("signature", {"algorithm": "", "head": {"alg": "RS256"}}),
    ("key", {"head": {"alg": "ES256"}}),
    ("key", {"head": {"kid": "unknown"}}),
    ("key", {"jwk": {"use": "enc"}}),
    ("key", {"jwk": {"use": 7}}),
    ("key", {"jwk": {"key_ops": ["encrypt", "wrapKey"]}}),
    ("key", {"jwk": {"key_ops": "verify"}}),
    ("key", {"jwk": {"alg": "RSA-OAEP"}}),
    ("key", {"bits": 1024}),
    ("key", {"bits": 2040}),
    ("key", {"bits": 2047}),
    ("key", {"bits": 1024, "zeros": 256}),
    ("no_role", _claim("groups", None)),
    ("no_role", _claim("groups", ["somebody", 7, None])),
    ("no_role", _claim("groups", {"payments-admins": True})),
    ("declined", {"answer": {"error": "access_denied", "error_description": "<b>no</b>"}}),
    ("code", {"answer": {"code": "another"}}),
    ("code", {"answer": {"code": ""}}),
    ("state", {"answer": {"state": "another"}}),
    ("state", {"answer": {"state": ""}}),
    ("state", {"answer": {"state": "é"}}),
]


@pytest.mark.parametrize(
    ("reason", "changes"),
    FALSE_RESPONSES,
    ids=[f"{n} {r}" for n, (r, _) in enumerate(FALSE_RESPONSES)],
)
async def test_a_false_response_is_rejected_and_counted(
    operator: Api,
    world: World,
    provider: IdentityProvider,
    capsys: pytest.CaptureFixture[str],
    reason: str,
    changes: dict[str, Any],
) -> None:
    for name, value in changes.items():
        setattr(provider, name, value)
    before = _count_failures(reason)
    visitor = Visitor(operator)
    callback_url = await _get_callback_path(visitor)
    answer = await visitor.get(callback_url)
    assert answer.status == 401
    assert "<b>" not in answer.body.decode()
    assert _count_failures(reason) == before + 1
    assert not await world.rows("SELECT FROM console_session UNION SELECT FROM operator_identity")
    logged = capsys.readouterr().out
    assert f"reason=oidc_{reason}" in logged
    secrets = [CLIENT_SECRET, *(item for item in query_of(callback_url).values() if len(item) > 20)]
    assert not any(secret in logged for secret in secrets if secret != provider.issuer)


async def test_a_clock_skew_of_a_few_seconds_is_tolerated(
    operator: Api, provider: IdentityProvider
) -> None:
    def shift_times(claims: dict[str, Any]) -> None:
        claims |= {"exp": time.time() - 20, "iat": time.time() + 20}

    provider.lie = shift_times
    await _sign_in_visitor(operator)


async def test_a_sign_in_cannot_be_finished_in_a_different_browser(operator: Api) -> None:
    callback_url = await _get_callback_path(Visitor(operator))
    stranger = Visitor(operator)
    assert (await stranger.get(callback_url)).status == 401  # without a cookie
    await stranger.get("/sign-in/oidc")
    assert (await stranger.get(callback_url)).status == 401  # with another cookie
    assert not await _is_signed_in(stranger)


async def test_a_code_and_a_state_can_be_used_only_once(
    operator: Api, world: World, provider: IdentityProvider
) -> None:
    visitor = Visitor(operator)
    callback_url = await _get_callback_path(visitor)
    cookies = dict(visitor.cookies)
    assert (await visitor.get(callback_url)).status == 200
    assert (
        await Visitor(operator, dict(cookies)).get(callback_url)
    ).status == 401  # by the provider
    provider.accepts_codes_twice = True
    visitor = Visitor(operator)
    callback_url = await _get_callback_path(visitor)
    cookies = dict(visitor.cookies)
    assert (await visitor.get(callback_url)).status == 200
    before = _count_failures("replayed")
    assert (await Visitor(operator, dict(cookies)).get(callback_url)).status == 401
    assert _count_failures("replayed") == before + 1
    assert len(await world.rows("SELECT FROM console_session")) == 2


async def test_a_sign_in_expires_after_ten_minutes(operator: Api, world: World) -> None:
    visitor = Visitor(operator)
    callback_url = await _get_callback_path(visitor)
    await world.move_clock(601)
    before = _count_failures("state")
    assert (await visitor.get(callback_url)).status == 401
    assert _count_failures("state") == before + 1


async def test_a_rotated_key_without_an_id_is_read_again(
    operator: Api, provider: IdentityProvider
) -> None:
    provider.head = {"kid": None}
    provider.jwk = {"kid": None}
    await _sign_in_visitor(operator)
    provider.key = 1
    await _sign_in_visitor(operator)
    assert provider.asked.count("keys") == 2


async def test_rotated_keys_are_read_again(operator: Api, provider: IdentityProvider) -> None:
    await _sign_in_visitor(operator)
    provider.key = 1
    await _sign_in_visitor(operator)
    assert provider.asked.count("keys") == 2
    assert provider.asked.count("discovery") == 1
    provider.head = {"kid": "unknown"}  # unknown key ids do not cause repeated requests
    for _ in range(3):
        assert (await _sign_in(Visitor(operator))).status == 401
    assert provider.asked.count("keys") == 2


async def test_the_role_from_the_latest_sign_in_applies_to_all_sessions(
    operator: Api, provider: IdentityProvider
) -> None:
    first = await _sign_in_visitor(operator)
    provider.person |= {"groups": "payments-finance"}
    second = await _sign_in_visitor(operator)
    for visitor in (first, second):
        assert " finance " in words(await visitor.get("/sessions"))
        assert (await visitor.get("/operations/operator/issue")).status == 403
    provider.person |= {"groups": []}
    answer = await _sign_in(Visitor(operator))
    assert "does not have a role" in words(answer)
    assert not await _is_signed_in(first)
    assert not await _is_signed_in(second)
    provider.person |= {"groups": "staff"}
    await _sign_in_visitor(operator)
    assert not await _is_signed_in(first)


async def test_a_blocked_identity_is_signed_out_and_unblocking_needs_approval(
    operator: Api, world: World, provider: IdentityProvider
) -> None:
    visitor = await _sign_in_visitor(operator)
    [identity] = await world.perform(ListIdentities())
    await world.perform(BlockIdentity(name=identity.name))
    assert not await _is_signed_in(visitor)
    assert "Your account is blocked." in words(await _sign_in(Visitor(operator)))
    assert await UnblockIdentity(name=identity.name).needs_approval(world.service.operation_context)
    await world.perform(UnblockIdentity(name=identity.name))
    assert not await _is_signed_in(visitor)
    await _sign_in_visitor(operator)
    assert not await _is_signed_in(visitor)


async def test_identities_with_the_same_name_are_distinct_and_no_token_can_use_their_names(
    operator: Api, world: World, provider: IdentityProvider
) -> None:
    await _sign_in_visitor(operator)
    provider.person |= {"sub": "u-2"}
    await _sign_in_visitor(operator)
    await _sign_in_visitor(operator)
    names = {item.name for item in await world.perform(ListIdentities())}
    assert len(names) == 2
    assert all(name.startswith("oidc:ada@example.com/") for name in names)
    for name in (*names, "OIDC:x"):
        with pytest.raises(RefusedError, match="must not start with oidc:"):
            await world.perform(IssueOperatorToken(name=name))


async def test_an_unverified_email_is_not_used_as_the_name(
    operator: Api, world: World, provider: IdentityProvider
) -> None:
    provider.person |= {"email_verified": False, "preferred_username": "Ada\u202e / L\n"}
    await _sign_in_visitor(operator)
    [identity] = await world.perform(ListIdentities())
    assert identity.name.rpartition("/")[0] == "oidc:AdaL"


async def test_an_identity_can_approve_the_proposal_of_a_different_identity(
    operator: Api, world: World, provider: IdentityProvider
) -> None:
    ada = await _sign_in_visitor(operator)
    provider.person |= {"sub": "u-2", "email": "alan@example.com"}
    alan = await _sign_in_visitor(operator)
    await ada.get("/operations/operator/issue")
    answer = await ada.post("/operations/operator/issue", name="Grace", role="viewer", days="90")
    assert answer.status == 202, words(answer)
    [proposal] = await world.rows("SELECT id, proposed_by FROM proposal")
    assert proposal["proposed_by"].startswith("oidc:ada@example.com/")
    approvals_text = words(await ada.get("/approvals"))
    approval_id = next(item for item in approvals_text.split() if item.startswith("appr_"))
    actor = Actor(proposal["proposed_by"], "mine", Role.ADMIN, uses_http=True)
    with pytest.raises(RefusedError, match="an operator other than"):
        await world.service.submit(Approve(approval_id=approval_id), actor)
    await alan.get(f"/approvals/{approval_id}")
    answer = await alan.post(f"/approvals/{approval_id}/approve", note="agreed", why="agreed")
    assert "op_" in words(answer)
    provider.person |= {"groups": []}
    await _sign_in(Visitor(operator))  # without a role, Alan is signed out
    [row] = await world.rows("SELECT decided_by FROM proposal")
    assert row["decided_by"].startswith("oidc:alan@example.com/")


async def test_an_identity_cannot_get_a_token_by_replacing_a_token(
    operator: Api, world: World
) -> None:
    await _sign_in_visitor(operator)
    [identity] = await world.perform(ListIdentities())
    with pytest.raises(RefusedError, match="with this token"):
        await world.service.submit(ReplaceToken(), Actor(identity.name, "more", Role.ADMIN))


async def test_a_session_ends_after_twelve_hours(operator: Api, world: World) -> None:
    visitor = await _sign_in_visitor(operator)
    await world.move_clock(11 * HOURS)
    assert await _is_signed_in(visitor)
    await world.move_clock(12 * HOURS + 1)
    assert not await _is_signed_in(visitor)


async def test_an_identity_can_list_and_end_only_its_own_sessions(
    operator: Api, provider: IdentityProvider
) -> None:
    first, second = await _sign_in_visitor(operator), await _sign_in_visitor(operator)
    provider.person |= {"sub": "u-2"}
    stranger = await _sign_in_visitor(operator)
    session_id = second.cookies["payintent-console"].partition(".")[0]
    assert session_id in (await first.get("/sessions")).body.decode()
    assert session_id not in (await stranger.get("/sessions")).body.decode()
    assert (await stranger.post(f"/sessions/{session_id}/end")).status == 404
    assert (await first.post(f"/sessions/{session_id}/end")).status == 303
    assert not await _is_signed_in(second)


UNUSABLE: list[dict[str, Any]] = [
    {"issuer": "https://login.example.com"},
    {"token_endpoint": "http://login.example.com/token"},
    {"token_endpoint": "https://login.example.com/token#part"},
    {"jwks_uri": 7},
    {"authorization_endpoint": "javascript:alert(1)"},
    {"token_endpoint_auth_methods_supported": ["private_key_jwt"]},
]


@pytest.mark.parametrize("metadata", UNUSABLE, ids=str)
async def test_a_provider_with_invalid_metadata_is_not_used(
    operator: Api, provider: IdentityProvider, metadata: dict[str, Any]
) -> None:
    provider.metadata = metadata
    answer = await Visitor(operator).get("/sign-in/oidc")
    assert answer.status == 503
    assert "the identity provider cannot be used" in words(answer)
    assert (await Visitor(operator).get("/sign-in/oidc")).status == 503
    assert provider.asked == ["discovery"]  # the failure is cached


class TestWithoutProvider:
    """No issuer is configured."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"oidc_issuer": ""})

    async def test_there_is_no_openid_connect_page_or_link(self, operator: Api) -> None:
        for page in ("/sign-in/oidc", "/sign-in/oidc/callback?code=x&state=y"):
            assert (await Visitor(operator).get(page)).status == 404
        assert "/sign-in/oidc" not in (await Visitor(operator).get("/sign-in")).body.decode()


class TestSlowedDown:
    """The limit on failed authentications is low."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        limits = {"failed_logins_per_address_per_s": 1, "failed_logins_per_address_burst": 3}
        return settings.model_copy(update=limits)

    async def test_failed_sign_ins_are_rate_limited_per_address(self, operator: Api) -> None:
        answers = [
            await Visitor(operator).get("/sign-in/oidc/callback?code=x&state=y") for _ in range(12)
        ]
        assert {answer.status for answer in answers} == {401, 429}
