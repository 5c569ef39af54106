"""An address with repeated authentication failures is throttled, and only this address."""

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
from tests.support.running_service import serving_api
from tests.support.world import Answer, Api

_LIMITS = {"failed_logins_per_address_per_s": 1, "failed_logins_per_address_burst": 3}
_REFUSED = "payintent_authentication_attempts_refused_total"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A burst of three failures, with almost no refill."""
    return settings.model_copy(update={"edge_trusted_proxies": "127.0.0.1"} | _LIMITS)


def _unknown_key(prefix: str = api_key.MERCHANT) -> str:
    return api_key.make_api_key(prefix, "ZZZZZZZZ", "A" * api_key.SECRET_CHARS).text


async def _request(api: Api, key: str, address: str | None, path: str = "/v1/payments") -> Answer:
    headers = api.bearer(key) | ({"X-Forwarded-For": address} if address else {})
    return await api.send("GET", path, headers=headers)


async def _exhaust(attempt: Callable[[], Any]) -> list[Answer]:
    """Authenticate until an attempt is rejected. A bucket refills if the machine is slow."""
    answers: list[Answer] = []
    for _ in range(100):
        answers.append(await attempt())
        if answers[-1].status == 429:
            return answers
    raise AssertionError("no attempt was rejected")


async def test_repeated_failures_throttle_only_their_address(
    api: Api, capfd: pytest.CaptureFixture[str]
) -> None:
    before = REGISTRY.get_sample_value(_REFUSED, {"holder": "merchant"}) or 0
    *failures, rejection = await _exhaust(lambda: _request(api, _unknown_key(), "192.0.2.7"))
    assert len(failures) >= 3
    assert {answer.status for answer in failures} == {401}
    assert refusal(rejection) == (429, "RATE_LIMITED")
    assert int(rejection.headers["Retry-After"]) >= 1
    assert REGISTRY.get_sample_value(_REFUSED, {"holder": "merchant"}) == before + 1
    assert (await _request(api, _unknown_key(), "192.0.2.8")).status == 401
    logged = "".join(capfd.readouterr())
    assert logged.count("authentication_failed") == len(failures) + 1
    assert "authentication_slowed" in logged


async def test_throttling_does_not_lock_out_an_unused_key_at_the_same_address(
    api: Api, settings: Settings
) -> None:
    world = api.world
    new = await world.perform(IssueApiKey(merchant_id=world.merchant_id, name="new"))
    guessed = api_key.make_api_key(api_key.MERCHANT, new.api_key.split("_")[2], "A" * 43).text
    for invalid_key in (_unknown_key(), guessed, "nonsense"):
        await _exhaust(lambda key=invalid_key: _request(api, key, None))  # without a proxy
    assert (await _request(api, new.api_key, None)).status == 200
    # This also holds for a new process, which does not know any key yet.
    async with serving_api(settings, world) as restarted:
        await _exhaust(lambda: _request(restarted, _unknown_key(), None))
        assert (await _request(restarted, world.api_key, None)).status == 200
        assert (await _request(restarted, new.api_key, None)).status == 200


async def test_operator_tokens_are_throttled_too(operator: Api) -> None:
    token = await operator.world.operator_token()
    path = "/operator/tax/list"
    assert (await _request(operator, token, "192.0.2.7", path)).status == 200
    *_, rejection = await _exhaust(
        lambda: _request(operator, _unknown_key(api_key.OPERATOR), "192.0.2.7", path)
    )
    assert refusal(rejection) == (429, "RATE_LIMITED")
    assert (await _request(operator, token, "192.0.2.7", path)).status == 200
    second_token = await operator.world.operator_token("bob")
    assert (await _request(operator, second_token, "192.0.2.7", path)).status == 200


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


async def test_failures_from_an_address_are_limited_by_a_burst_and_a_rate(
    settings: Settings,
) -> None:
    attempts = _Attempts(settings)
    codes = await attempts.try_bad("192.0.2.7", 5)
    assert codes == [ErrorCode.UNAUTHORIZED] * 3 + [ErrorCode.RATE_LIMITED] * 2
    attempts.now += 1
    codes = await attempts.try_bad("192.0.2.7", 2)
    assert codes == [ErrorCode.UNAUTHORIZED, ErrorCode.RATE_LIMITED]
    assert await attempts.try_key("192.0.2.7", good=True) == "good"
    codes = await attempts.try_bad(None, 5)  # behind a proxy, unreadable addresses share a limit
    assert codes == [ErrorCode.UNAUTHORIZED] * 3 + [ErrorCode.RATE_LIMITED] * 2
    without_proxies = _Attempts(settings.model_copy(update={"edge_trusted_proxies": ""}))
    assert await without_proxies.try_bad(None, 5) == [ErrorCode.UNAUTHORIZED] * 5
    unlimited = _Attempts(settings, failed_logins_per_address_per_s=0)
    assert await unlimited.try_bad("192.0.2.7", 9) == [ErrorCode.UNAUTHORIZED] * 9


async def test_a_valid_key_does_not_count_against_the_limit(settings: Settings) -> None:
    attempts = _Attempts(settings)
    assert {await attempts.try_key("192.0.2.7", good=True) for _ in range(9)} == {"good"}
    codes = await attempts.try_bad("192.0.2.7", 4)
    assert codes == [ErrorCode.UNAUTHORIZED] * 3 + [ErrorCode.RATE_LIMITED]


async def test_concurrent_key_checks_of_a_throttled_address_are_limited(
    settings: Settings,
) -> None:
    """Guesses must not use up the database connections of other requests."""
    attempts, checks, most = _Attempts(settings), 0, 0
    await attempts.try_bad("192.0.2.7", 4)
    request = Request({"type": "http", "headers": [], "client": ("192.0.2.7", 4711)})

    async def check() -> None:
        nonlocal checks, most
        async with attempts.attempts.attempt(request, api_key.MERCHANT):
            checks += 1
            most = max(most, checks)
            await asyncio.sleep(0)
            checks -= 1

    await asyncio.gather(*(check() for _ in range(50)))
    assert most == 4
