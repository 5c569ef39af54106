"""An address whose authentications keep failing is slowed down, and locks nobody else out."""

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY
from starlette.requests import Request

from payintent.api import authentication_failures as attempts_module
from payintent.api.authentication_failures import Attempts, UnauthorizedError
from payintent.api.viewer import ViewerReader
from payintent.config import Settings
from payintent.domain import api_key
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.encryption import Encryption
from tests.api.arrange import refusal
from tests.support.world import Answer, Api

_LIMITS = {"failed_logins_per_address_per_s": 1, "failed_logins_per_address_burst": 3}
_REFUSED = "payintent_authentication_attempts_refused_total"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Three failures at once, and then hardly any."""
    return settings.model_copy(update={"edge_trusted_proxies": "127.0.0.1"} | _LIMITS)


def _unknown(prefix: str = api_key.MERCHANT) -> str:
    return api_key.make_api_key(prefix, "ZZZZZZZZ", "A" * api_key.SECRET_CHARS).text


async def _ask(api: Api, key: str, address: str | None, path: str = "/v1/payments") -> Answer:
    headers = api.bearer(key) | ({"X-Forwarded-For": address} if address else {})
    return await api.send("GET", path, headers=headers)


async def _exhaust(ask: Callable[[], Any]) -> list[Answer]:
    """Ask until it is refused; a slow machine earns attempts meanwhile."""
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


async def test_whoever_had_a_good_key_is_not_locked_out_by_others_at_the_same_address(
    api: Api,
) -> None:
    good = api.world.api_key
    assert (await _ask(api, good, None)).status == 200
    await _exhaust(lambda: _ask(api, _unknown(), None))  # no proxy tells them apart
    assert (await _ask(api, good, None)).status == 200


async def test_operators_tokens_are_slowed_down_as_well(operator: Api) -> None:
    token = await operator.world.operator_token()
    path = "/operator/tax/list"
    assert (await _ask(operator, token, "192.0.2.7", path)).status == 200
    *_, refused = await _exhaust(
        lambda: _ask(operator, _unknown(api_key.OPERATOR), "192.0.2.7", path)
    )
    assert refusal(refused) == (429, "RATE_LIMITED")
    assert (await _ask(operator, token, "192.0.2.7", path)).status == 200


class _Attempts:
    """Attempts on a clock of the test's own."""

    def __init__(self, settings: Settings, secrets: Encryption, **limits: int) -> None:
        self.now = 1_000.0
        settings = settings.model_copy(update=_LIMITS | limits)
        self.attempts = Attempts(settings, ViewerReader(settings), secrets, lambda: self.now)

    def try_key(self, key: str, address: str | None, *, good: bool = False) -> str:
        client = (address, 4711) if address else None
        headers = [(b"authorization", key.encode())]
        request = Request({"type": "http", "headers": headers, "client": client})
        try:
            with self.attempts.attempt(request, api_key.MERCHANT):
                if not good:
                    raise UnauthorizedError(api_key.MERCHANT, "unknown")
        except RefusedError as refused:
            return refused.code
        return "good"


@pytest.fixture
def secrets(service: Any) -> Encryption:
    return service.encryption


async def test_an_address_has_its_burst_of_failures_and_then_its_rate(
    settings: Settings, secrets: Encryption
) -> None:
    tried = _Attempts(settings, secrets)
    told = [tried.try_key("bad", "192.0.2.7") for _ in range(5)]
    assert told == [ErrorCode.UNAUTHORIZED] * 3 + [ErrorCode.RATE_LIMITED] * 2
    tried.now += 1
    told = [tried.try_key("bad", "192.0.2.7") for _ in range(2)]
    assert told == [ErrorCode.UNAUTHORIZED, ErrorCode.RATE_LIMITED]
    assert tried.try_key("new", "192.0.2.7", good=True) == ErrorCode.RATE_LIMITED
    assert [tried.try_key("bad", None) for _ in range(5)] == [ErrorCode.UNAUTHORIZED] * 5
    unlimited = _Attempts(settings, secrets, failed_logins_per_address_per_s=0)
    assert [unlimited.try_key("bad", "192.0.2.7") for _ in range(9)] == [ErrorCode.UNAUTHORIZED] * 9


async def test_a_good_key_spends_nothing_and_a_revoked_one_is_good_no_more(
    settings: Settings, secrets: Encryption
) -> None:
    tried = _Attempts(settings, secrets)
    assert {tried.try_key("key", "192.0.2.7", good=True) for _ in range(9)} == {"good"}
    told = [tried.try_key("key", "192.0.2.7") for _ in range(4)]
    assert told == [ErrorCode.UNAUTHORIZED] * 3 + [ErrorCode.RATE_LIMITED]


async def test_a_good_key_is_remembered_for_a_day_and_so_many_are(
    settings: Settings, secrets: Encryption, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts_module, "_GOOD_MAX", 3)
    tried = _Attempts(settings, secrets)
    for key in ("a", "b", "a", "c", "d"):  # `b` is the one that was used least recently
        assert tried.try_key(key, "192.0.2.1", good=True) == "good"
    assert len(tried.attempts._good_until) == 3
    for _ in range(4):
        tried.try_key("bad", "192.0.2.7")
    told = {key: tried.try_key(key, "192.0.2.7", good=True) for key in "abcd"}
    assert told == {"a": "good", "b": ErrorCode.RATE_LIMITED, "c": "good", "d": "good"}
    tried.now += 24 * 3600
    for _ in range(4):
        tried.try_key("bad", "192.0.2.7")
    assert tried.try_key("a", "192.0.2.7", good=True) == ErrorCode.RATE_LIMITED
