"""Sign-in to the console with OpenID Connect, at a provider that may return false data."""

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
from tests.console.visitor import Visitor, words
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
    async with identity_provider() as one:
        yield one


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


async def _back(visitor: Visitor, page: str = "/") -> str:
    """Go to the provider; return the URL to which it redirects the browser."""
    begun = await visitor.get(f"/sign-in/oidc?next={page}")
    assert begun.status == 303, words(begun)
    async with visitor.api._client.get(begun.headers["Location"], allow_redirects=False) as sent:
        assert sent.status == 303
        return sent.headers["Location"].removeprefix(visitor.api.base)


async def _sign_in(visitor: Visitor, page: str = "/") -> Answer:
    return await visitor.get(await _back(visitor, page))


async def _signed_in(api: Api) -> Visitor:
    visitor = Visitor(api)
    answer = await _sign_in(visitor)
    assert answer.status == 200, words(answer)
    return visitor


async def _is_in(visitor: Visitor) -> bool:
    return (await visitor.get("/sessions")).status == 200


def _failures(reason: str) -> float:
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
    [who] = await world.perform(ListIdentities())
    assert (who.role, who.subject) == (Role.ADMIN, "u-1")
    [entry] = await world.rows("SELECT * FROM audit WHERE action = 'operator.sign-in'")
    assert entry["who"] == who.name
    assert json.loads(entry["details"])["subject"] == "u-1"


async def test_es256_signatures_are_accepted(operator: Api, provider: IdentityProvider) -> None:
    provider.algorithm = "ES256"
    assert await _is_in(await _signed_in(operator))


async def test_the_session_cookie_is_strict_and_the_sign_in_cookie_is_lax(
    operator: Api,
) -> None:
    visitor = Visitor(operator)
    begun = await visitor.get("/sign-in/oidc")
    way = begun.headers["Set-Cookie"].lower()
    assert "samesite=lax" in way
    assert "httponly" in way
    assert "max-age=600" in way
    back = await visitor.get(await _back(visitor))
    session, gone = sorted(back.headers.getall("Set-Cookie"), key=lambda one: "Max-Age=0" in one)
    assert "samesite=strict" in session.lower()
    assert "httponly" in session.lower()
    assert gone.startswith("payintent-console-sign-in=")


def _set(name: str, value: Any) -> dict[str, Any]:
    def lie(claims: dict[str, Any]) -> None:
        claims[name] = value(claims) if callable(value) else value
        if claims[name] is None:
            del claims[name]

    return {"lie": lie}


LIES: list[tuple[str, dict[str, Any]]] = [
    ("nonce", _set("nonce", "another")),
    ("nonce", _set("nonce", None)),
    ("nonce", _set("nonce", 7)),
    ("audience", _set("aud", "another-client")),
    ("audience", _set("aud", None)),
    ("audience", _set("aud", [CLIENT_ID, "another-client"])),
    ("audience", _set("azp", "another-client")),
    ("issuer", _set("iss", "https://login.example.com")),
    ("issuer", _set("iss", lambda claims: claims["iss"] + "/")),
    ("issuer", {"answer": {"iss": "https://login.example.com"}}),
    ("expired", _set("exp", lambda _: time.time() - 90)),
    ("time", _set("exp", None)),
    ("time", _set("exp", "2099")),
    ("time", _set("iat", None)),
    ("time", _set("iat", lambda _: time.time() + 300)),
    ("time", _set("nbf", lambda _: time.time() + 300)),
    ("subject", _set("sub", None)),
    ("subject", _set("sub", "")),
    ("subject", _set("sub", "x" * 256)),
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
    ("no_role", _set("groups", None)),
    ("no_role", _set("groups", ["somebody", 7, None])),
    ("no_role", _set("groups", {"payments-admins": True})),
    ("declined", {"answer": {"error": "access_denied", "error_description": "<b>no</b>"}}),
    ("code", {"answer": {"code": "another"}}),
    ("code", {"answer": {"code": ""}}),
    ("state", {"answer": {"state": "another"}}),
    ("state", {"answer": {"state": ""}}),
    ("state", {"answer": {"state": "é"}}),
]


@pytest.mark.parametrize(("reason", "lie"), LIES, ids=[f"{n} {r}" for n, (r, _) in enumerate(LIES)])
async def test_a_false_response_is_rejected_and_counted(
    operator: Api,
    world: World,
    provider: IdentityProvider,
    capsys: pytest.CaptureFixture[str],
    reason: str,
    lie: dict[str, Any],
) -> None:
    for name, value in lie.items():
        setattr(provider, name, value)
    before = _failures(reason)
    visitor = Visitor(operator)
    back = await _back(visitor)
    answer = await visitor.get(back)
    assert answer.status == 401
    assert "<b>" not in answer.body.decode()
    assert _failures(reason) == before + 1
    assert not await world.rows("SELECT FROM console_session UNION SELECT FROM operator_identity")
    logged = capsys.readouterr().out
    assert f"reason=oidc_{reason}" in logged
    secrets = [CLIENT_SECRET, *(item for item in query_of(back).values() if len(item) > 20)]
    assert not any(secret in logged for secret in secrets if secret != provider.issuer)


async def test_a_clock_skew_of_some_seconds_is_tolerated(
    operator: Api, provider: IdentityProvider
) -> None:
    def near(claims: dict[str, Any]) -> None:
        claims |= {"exp": time.time() - 20, "iat": time.time() + 20}

    provider.lie = near
    await _signed_in(operator)


async def test_a_sign_in_cannot_be_finished_in_another_browser(operator: Api) -> None:
    back = await _back(Visitor(operator))
    stranger = Visitor(operator)
    assert (await stranger.get(back)).status == 401  # without a cookie
    await stranger.get("/sign-in/oidc")
    assert (await stranger.get(back)).status == 401  # with one of its own
    assert not await _is_in(stranger)


async def test_a_code_and_a_state_can_be_used_once(
    operator: Api, world: World, provider: IdentityProvider
) -> None:
    visitor = Visitor(operator)
    back = await _back(visitor)
    kept = dict(visitor.cookies)
    assert (await visitor.get(back)).status == 200
    assert (await Visitor(operator, dict(kept)).get(back)).status == 401  # the provider's own rule
    provider.accepts_codes_twice = True
    visitor = Visitor(operator)
    back = await _back(visitor)
    kept = dict(visitor.cookies)
    assert (await visitor.get(back)).status == 200
    before = _failures("replayed")
    assert (await Visitor(operator, dict(kept)).get(back)).status == 401
    assert _failures("replayed") == before + 1
    assert len(await world.rows("SELECT FROM console_session")) == 2


async def test_a_sign_in_expires_after_ten_minutes(operator: Api, world: World) -> None:
    visitor = Visitor(operator)
    back = await _back(visitor)
    await world.move_clock(601)
    before = _failures("state")
    assert (await visitor.get(back)).status == 401
    assert _failures("state") == before + 1


async def test_rotated_keys_are_read_again(operator: Api, provider: IdentityProvider) -> None:
    await _signed_in(operator)
    provider.key = 1
    await _signed_in(operator)
    assert provider.asked.count("keys") == 2
    assert provider.asked.count("discovery") == 1
    provider.head = {"kid": "unknown"}  # whoever names what is none does not have us ask for ever
    for _ in range(3):
        assert (await _sign_in(Visitor(operator))).status == 401
    assert provider.asked.count("keys") == 2


async def test_the_role_from_the_latest_sign_in_applies_to_all_sessions(
    operator: Api, provider: IdentityProvider
) -> None:
    first = await _signed_in(operator)
    provider.person |= {"groups": "payments-finance"}
    second = await _signed_in(operator)
    for visitor in (first, second):
        assert " finance " in words(await visitor.get("/sessions"))
        assert (await visitor.get("/operations/operator/issue")).status == 403
    provider.person |= {"groups": []}
    answer = await _sign_in(Visitor(operator))
    assert "does not have a role" in words(answer)
    assert not await _is_in(first)
    assert not await _is_in(second)
    provider.person |= {"groups": "staff"}
    await _signed_in(operator)
    assert not await _is_in(first)


async def test_a_blocked_identity_is_signed_out_and_unblocking_needs_approval(
    operator: Api, world: World, provider: IdentityProvider
) -> None:
    visitor = await _signed_in(operator)
    [who] = await world.perform(ListIdentities())
    await world.perform(BlockIdentity(name=who.name))
    assert not await _is_in(visitor)
    assert "Your account is blocked." in words(await _sign_in(Visitor(operator)))
    assert await UnblockIdentity(name=who.name).needs_approval(world.service.operation_context)
    await world.perform(UnblockIdentity(name=who.name))
    assert not await _is_in(visitor)
    await _signed_in(operator)
    assert not await _is_in(visitor)


async def test_identities_with_the_same_name_are_distinct_and_no_token_can_use_their_names(
    operator: Api, world: World, provider: IdentityProvider
) -> None:
    await _signed_in(operator)
    provider.person |= {"sub": "u-2"}
    await _signed_in(operator)
    await _signed_in(operator)
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
    await _signed_in(operator)
    [who] = await world.perform(ListIdentities())
    assert who.name.rpartition("/")[0] == "oidc:AdaL"


async def test_an_identity_can_approve_a_proposal_of_another_identity(
    operator: Api, world: World, provider: IdentityProvider
) -> None:
    ada = await _signed_in(operator)
    provider.person |= {"sub": "u-2", "email": "alan@example.com"}
    alan = await _signed_in(operator)
    await ada.get("/operations/operator/issue")
    answer = await ada.post("/operations/operator/issue", name="Grace", role="viewer", days="90")
    assert answer.status == 202, words(answer)
    [proposal] = await world.rows("SELECT id, proposed_by FROM proposal")
    assert proposal["proposed_by"].startswith("oidc:ada@example.com/")
    waiting = words(await ada.get("/approvals"))
    approval_id = next(item for item in waiting.split() if item.startswith("appr_"))
    actor = Actor(proposal["proposed_by"], "mine", Role.ADMIN, uses_http=True)
    with pytest.raises(RefusedError, match="an operator other than"):
        await world.service.submit(Approve(approval_id=approval_id), actor)
    await alan.get(f"/approvals/{approval_id}")
    answer = await alan.post(f"/approvals/{approval_id}/approve", note="agreed", why="agreed")
    assert "op_" in words(answer)
    provider.person |= {"groups": []}
    await _sign_in(Visitor(operator))  # whom the provider gives no role proposes nothing any more
    [row] = await world.rows("SELECT decided_by FROM proposal")
    assert row["decided_by"].startswith("oidc:alan@example.com/")


async def test_an_identity_cannot_get_a_token_by_replacing_a_token(
    operator: Api, world: World
) -> None:
    await _signed_in(operator)
    [who] = await world.perform(ListIdentities())
    with pytest.raises(RefusedError, match="with this token"):
        await world.service.submit(ReplaceToken(), Actor(who.name, "more", Role.ADMIN))


async def test_a_session_ends_after_twelve_hours(operator: Api, world: World) -> None:
    visitor = await _signed_in(operator)
    await world.move_clock(11 * HOURS)
    assert await _is_in(visitor)
    await world.move_clock(12 * HOURS + 1)
    assert not await _is_in(visitor)


async def test_an_identity_can_list_and_end_only_its_own_sessions(
    operator: Api, provider: IdentityProvider
) -> None:
    first, second = await _signed_in(operator), await _signed_in(operator)
    provider.person |= {"sub": "u-2"}
    stranger = await _signed_in(operator)
    session_id = second.cookies["payintent-console"].partition(".")[0]
    assert session_id in (await first.get("/sessions")).body.decode()
    assert session_id not in (await stranger.get("/sessions")).body.decode()
    assert (await stranger.post(f"/sessions/{session_id}/end")).status == 404
    assert (await first.post(f"/sessions/{session_id}/end")).status == 303
    assert not await _is_in(second)


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
    assert provider.asked == ["discovery"]  # a failure is not asked about by everybody


class TestWithoutProvider:
    """An installation without an issuer."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"oidc_issuer": ""})

    async def test_there_is_no_openid_connect_page_or_link(self, operator: Api) -> None:
        for page in ("/sign-in/oidc", "/sign-in/oidc/callback?code=x&state=y"):
            assert (await Visitor(operator).get(page)).status == 404
        assert "/sign-in/oidc" not in (await Visitor(operator).get("/sign-in")).body.decode()


class TestSlowedDown:
    """With a limit of failed authentications, which tests normally do not have."""

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        limits = {"failed_logins_per_address_per_s": 1, "failed_logins_per_address_burst": 3}
        return settings.model_copy(update=limits)

    async def test_failed_sign_ins_are_rate_limited_per_address(self, operator: Api) -> None:
        answers = [
            await Visitor(operator).get("/sign-in/oidc/callback?code=x&state=y") for _ in range(12)
        ]
        assert {answer.status for answer in answers} == {401, 429}
