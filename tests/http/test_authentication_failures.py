"""An address with repeated authentication failures is throttled, without affecting others."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY
from starlette.requests import Request

from payintent.core import access as api_key
from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.address_limits import AuthenticationAttempts, UnauthorizedError
from payintent.http.viewer import ViewerReader
from payintent.merchants.access_operations import IssueApiKey
from payintent.runtime.settings import Settings
from tests.support.arrange import refusal
from tests.support.serving import serving_api
from tests.support.world import Answer, Api

_LIMITS = {"failed_logins_per_address_per_s": 1, "failed_logins_per_address_burst": 3}
_REFUSED = "payintent_authentication_attempts_refused_total"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A burst of three failures, with almost no refill."""
    return settings.model_copy(update={"edge_trusted_proxies": "127.0.0.1"} | _LIMITS)


def _unknown(prefix: str = api_key.MERCHANT) -> str:
    return api_key.make_api_key(prefix, "ZZZZZZZZ", "A" * api_key.SECRET_CHARS).text


async def _ask(api: Api, key: str, address: str | None, path: str = "/v1/payments") -> Answer:
    headers = api.bearer(key) | ({"X-Forwarded-For": address} if address else {})
    return await api.send("GET", path, headers=headers)


async def _exhaust(ask: Callable[[], Any]) -> list[Answer]:
    """Authenticate until it is rejected, because a slow machine earns more attempts."""
    answers: list[Answer] = []
    for _ in range(100):
        answers.append(await ask())
        if answers[-1].status == 429:
            return answers
    raise AssertionError("it was never refused")


async def test_a_burst_of_failures_slows_its_address_down_and_no_other(
    api: Api, capfd: pytest.CaptureFixture[str]
) -> None:
    before = REGISTRY.get_sample_value(_REFUSED, {"holder": "merchant"}) or 0
    *failed, refused = await _exhaust(lambda: _ask(api, _unknown(), "192.0.2.7"))
    assert len(failed) >= 3
    assert {answer.status for answer in failed} == {401}
    assert refusal(refused) == (429, "RATE_LIMITED")
    assert int(refused.headers["Retry-After"]) >= 1
    assert REGISTRY.get_sample_value(_REFUSED, {"holder": "merchant"}) == before + 1
    assert (await _ask(api, _unknown(), "192.0.2.8")).status == 401
    logged = "".join(capfd.readouterr())
    assert logged.count("authentication_failed") == len(failed) + 1
    assert "authentication_slowed" in logged


async def test_guesses_lock_out_no_key_that_was_never_used_at_the_same_address(
    api: Api, settings: Settings
) -> None:
    world = api.world
    new = await world.perform(IssueApiKey(merchant_id=world.merchant_id, name="new"))
    guessed = api_key.make_api_key(api_key.MERCHANT, new.api_key.split("_")[2], "A" * 43).text
    for wrong in (_unknown(), guessed, "nonsense"):
        await _exhaust(lambda wrong=wrong: _ask(api, wrong, None))  # no proxy tells them apart
    assert (await _ask(api, new.api_key, None)).status == 200
    # Nor does a process that was started a moment ago, and has seen no key yet.
    async with serving_api(settings, world) as restarted:
        await _exhaust(lambda: _ask(restarted, _unknown(), None))
        assert (await _ask(restarted, world.api_key, None)).status == 200
        assert (await _ask(restarted, new.api_key, None)).status == 200


async def test_operators_tokens_are_slowed_down_as_well(operator: Api) -> None:
    token = await operator.world.operator_token()
    path = "/operator/tax/list"
    assert (await _ask(operator, token, "192.0.2.7", path)).status == 200
    *_, refused = await _exhaust(
        lambda: _ask(operator, _unknown(api_key.OPERATOR), "192.0.2.7", path)
    )
    assert refusal(refused) == (429, "RATE_LIMITED")
    assert (await _ask(operator, token, "192.0.2.7", path)).status == 200
    another = await operator.world.operator_token("bob")
    assert (await _ask(operator, another, "192.0.2.7", path)).status == 200


class _Attempts:
    """Attempts with a clock that the test advances."""

    def __init__(self, settings: Settings, **limits: int) -> None:
        self.now = 1_000.0
        settings = settings.model_copy(update=_LIMITS | limits)
        self.attempts = AuthenticationAttempts(settings, ViewerReader(settings), lambda: self.now)

    async def try_key(self, address: str | None, *, good: bool = False) -> str:
        client = (address, 4711) if address else None
        request = Request({"type": "http", "headers": [], "client": client})
        try:
            async with self.attempts.attempt(request, api_key.MERCHANT):
                if not good:
                    raise UnauthorizedError(api_key.MERCHANT, "unknown")
        except RefusedError as refused:
            return refused.code
        return "good"

    async def try_bad(self, address: str | None, times: int) -> list[str]:
        return [await self.try_key(address) for _ in range(times)]


async def test_an_address_has_its_burst_of_failures_and_then_its_rate(settings: Settings) -> None:
    tried = _Attempts(settings)
    told = await tried.try_bad("192.0.2.7", 5)
    assert told == [ErrorCode.UNAUTHORIZED] * 3 + [ErrorCode.RATE_LIMITED] * 2
    tried.now += 1
    told = await tried.try_bad("192.0.2.7", 2)
    assert told == [ErrorCode.UNAUTHORIZED, ErrorCode.RATE_LIMITED]
    assert await tried.try_key("192.0.2.7", good=True) == "good"
    told = await tried.try_bad(None, 5)  # behind a proxy, whoever cannot be read shares a limit
    assert told == [ErrorCode.UNAUTHORIZED] * 3 + [ErrorCode.RATE_LIMITED] * 2
    nobody_declared = _Attempts(settings.model_copy(update={"edge_trusted_proxies": ""}))
    assert await nobody_declared.try_bad(None, 5) == [ErrorCode.UNAUTHORIZED] * 5
    unlimited = _Attempts(settings, failed_logins_per_address_per_s=0)
    assert await unlimited.try_bad("192.0.2.7", 9) == [ErrorCode.UNAUTHORIZED] * 9


async def test_a_good_key_spends_nothing(settings: Settings) -> None:
    tried = _Attempts(settings)
    assert {await tried.try_key("192.0.2.7", good=True) for _ in range(9)} == {"good"}
    told = await tried.try_bad("192.0.2.7", 4)
    assert told == [ErrorCode.UNAUTHORIZED] * 3 + [ErrorCode.RATE_LIMITED]


async def test_few_keys_of_an_address_above_its_limit_are_checked_at_once(
    settings: Settings,
) -> None:
    """Guesses must not use up the database connections of other requests."""
    tried, checks, most = _Attempts(settings), 0, 0
    await tried.try_bad("192.0.2.7", 4)
    request = Request({"type": "http", "headers": [], "client": ("192.0.2.7", 4711)})

    async def check() -> None:
        nonlocal checks, most
        async with tried.attempts.attempt(request, api_key.MERCHANT):
            checks += 1
            most = max(most, checks)
            await asyncio.sleep(0)
            checks -= 1

    await asyncio.gather(*(check() for _ in range(50)))
    assert most == 4
