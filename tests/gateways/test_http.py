import gzip
import socket
import time
from collections.abc import AsyncGenerator

import pytest

from payintent.gateways.http_client import GatewayHttpClient, HttpResponse
from payintent.gateways.port import NotContacted, OutcomeUnknown
from tests.gateways.raw_server import reply, serve_responses

LIMIT = 1_000


@pytest.fixture
async def http() -> AsyncGenerator[GatewayHttpClient]:
    http = GatewayHttpClient(timeout_s=0.5, response_bytes_max=LIMIT)
    yield http
    await http.close()


async def test_a_response_is_returned_as_status_and_bytes(http: GatewayHttpClient) -> None:
    requests: list[bytes] = []
    async with serve_responses(reply("418 Teapot", b"\xff\x00"), requests) as url:
        response = await http.request("POST", f"{url}/a", headers={"X-Own": "1"}, body=b"question")
    assert response == HttpResponse(418, b"\xff\x00")
    assert requests[0].startswith(b"POST /a HTTP/1.1\r\n")
    assert requests[0].endswith(b"\r\n\r\nquestion")
    assert b"Accept-Encoding: identity\r\n" in requests[0]
    assert b"X-Own: 1\r\n" in requests[0]


async def test_a_redirect_is_returned_and_not_followed(http: GatewayHttpClient) -> None:
    requests: list[bytes] = []
    async with serve_responses(b"", requests) as target:
        redirect = reply("302 Found", b"", f"Location: {target}/")
        async with serve_responses(redirect) as url:
            response = await http.request("GET", url, headers={})
    assert response == HttpResponse(302, b"")
    assert requests == []


async def test_a_response_larger_than_the_limit_is_unknown(
    http: GatewayHttpClient,
) -> None:
    async with serve_responses(reply("200 OK", b"x" * LIMIT)) as url:
        assert await http.request("GET", url, headers={}) == HttpResponse(200, b"x" * LIMIT)
    async with serve_responses(reply("200 OK", b"x" * (LIMIT + 1))) as url:
        response = await http.request("GET", url, headers={})
    assert response == OutcomeUnknown(detail=f"the response exceeds {LIMIT} bytes")


async def test_an_endless_response_is_unknown(http: GatewayHttpClient) -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"400\r\n%b\r\n" % (
        b"x" * 1024
    )
    async with serve_responses(endless * 50) as url:
        assert isinstance(await http.request("GET", url, headers={}), OutcomeUnknown)


async def test_a_compressed_response_is_not_decompressed(http: GatewayHttpClient) -> None:
    compressed = gzip.compress(b"x" * 100_000)
    async with serve_responses(reply("200 OK", compressed, "Content-Encoding: gzip")) as url:
        assert await http.request("GET", url, headers={}) == HttpResponse(200, compressed)


async def test_cookies_are_not_stored(http: GatewayHttpClient) -> None:
    requests: list[bytes] = []
    async with serve_responses(reply("200 OK", b"", "Set-Cookie: a=1; Path=/"), requests) as url:
        await http.request("GET", url, headers={})
        await http.request("GET", url, headers={})
    assert b"Cookie" not in requests[1]


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"\x00" * 100,
    ],
)
async def test_an_incomplete_or_invalid_response_is_unknown(
    http: GatewayHttpClient, response: bytes
) -> None:
    async with serve_responses(response) as url:
        assert isinstance(await http.request("GET", url, headers={}), OutcomeUnknown)


async def test_a_refused_connection_is_reported_as_not_contacted_without_the_url(
    http: GatewayHttpClient,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    response = await http.request("GET", f"http://127.0.0.1:{port}/?key=secret", headers={})
    assert response == NotContacted(detail="no connection: ClientConnectorError")
    assert await http.request("GET", "nonsense", headers={}) == OutcomeUnknown(
        detail="no response: ValueError"
    )


async def test_a_timeout_is_unknown(http: GatewayHttpClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it never responds
        started_at = time.monotonic()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        response = await http.request("GET", url, headers={})
    assert response == OutcomeUnknown(detail="no response within 0.5 s")
    assert 0.4 < time.monotonic() - started_at < 3


async def test_an_unused_client_can_be_closed_twice() -> None:
    http = GatewayHttpClient(timeout_s=1, response_bytes_max=LIMIT)
    await http.close()
    await http.close()
