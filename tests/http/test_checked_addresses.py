"""The HTTP clients for webhooks and images connect only to the verified address."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from payintent.checkout.pictures.fetch import PictureFetcher
from payintent.http.egress import EgressRefusedError, make_egress_rules
from payintent.runtime.settings import Settings
from payintent.webhooks.sender import WebhookSender

PUBLIC = "93.184.216.34"
#: Limits the time of a connection that the trap accepts if the check is missing.
_TIMEOUT = aiohttp.ClientTimeout(total=5)
_GETADDRINFO = socket.getaddrinfo
OpenSession = Callable[[Settings], aiohttp.ClientSession]


@pytest.fixture(params=["webhooks", "pictures"])
async def open_session(request: pytest.FixtureRequest) -> AsyncIterator[OpenSession]:
    """Open a session like a client of the service."""
    clients: list[WebhookSender | PictureFetcher] = []

    def make_session(settings: Settings) -> aiohttp.ClientSession:
        if request.param == "webhooks":
            sender = WebhookSender(settings, lambda: 1_700_000_000.0)
            clients.append(sender)
            return sender._client.open_session()
        fetcher = PictureFetcher(make_egress_rules(settings))
        clients.append(fetcher)
        return fetcher._open_session()

    yield make_session
    for client in clients:
        await client.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The resolver's responses in order; the last response is repeated."""
    answers: dict[str, list[str]] = {}

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in answers:
            return _GETADDRINFO(host, *arguments, **options)
        address = answers[name].pop(0) if len(answers[name]) > 1 else answers[name][0]
        return _GETADDRINFO(address, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return answers


def _outside(any_settings: Settings) -> Settings:
    return any_settings.model_copy(update={"sandbox": False})


async def test_no_socket_is_opened_to_a_literal_loopback_address(
    any_settings: Settings, open_session: OpenSession, trap: Any
) -> None:
    """The client does not resolve a literal address, so only the socket's check applies."""
    session = open_session(_outside(any_settings))
    with pytest.raises(aiohttp.ClientConnectorError) as error:
        await session.get(f"http://127.0.0.1:{trap.port}/", timeout=_TIMEOUT)
    assert isinstance(error.value.os_error, EgressRefusedError)
    assert trap.is_untouched()


async def test_a_name_that_now_resolves_to_loopback_is_refused(
    any_settings: Settings, open_session: OpenSession, names: dict[str, list[str]], trap: Any
) -> None:
    names["rebind.example"] = ["127.0.0.1"]  # it was public when it was registered
    session = open_session(_outside(any_settings))
    with pytest.raises(aiohttp.ClientConnectorDNSError) as error:
        await session.get(f"http://rebind.example:{trap.port}/", timeout=_TIMEOUT)
    assert isinstance(error.value.os_error, EgressRefusedError)
    assert trap.is_untouched()


async def test_a_name_is_resolved_once_and_the_checked_address_is_used(
    any_settings: Settings, open_session: OpenSession, names: dict[str, list[str]], trap: Any
) -> None:
    """Otherwise, the name could change between the check and the connection."""
    names["rebind.example"] = ["127.0.0.1", PUBLIC]
    session = open_session(any_settings.model_copy(update={"sandbox": True}))
    fetch = asyncio.ensure_future(session.get(f"http://rebind.example:{trap.port}/"))
    await trap.catch()
    with pytest.raises(aiohttp.ClientConnectionError):
        await fetch
    assert names["rebind.example"] == [PUBLIC], "one response was used"
