"""All our HTTP clients call URLs byte for byte as given."""

import time
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from payintent.checkout.pictures.fetch import PictureFetcher, PictureUnavailableError
from payintent.evm.rpc import RpcCall, RpcEndpoint, RpcLimits, make_session
from payintent.gateways.http_client import GatewayHttpClient, HttpResponse
from payintent.gateways.port import OutcomeUnknown
from payintent.http.egress import EgressRules
from payintent.reconciliation.sources import S3Credentials, S3Source, SourceUnavailableError
from payintent.runtime.http_session import encode_invalid_characters, make_exact_url
from tests.gateways.raw_server import reply, serve_responses

#: The URL and the expected request target.
_TARGETS = [
    ("/triggers?sp=%2Ftriggers&sig=a%2Bb%3D%3D%2F&pipe=a|b",) * 2,
    ("/a/../b/./c//d%2e%2E/%7Euser?x=%zz&y=100%&z=%",) * 2,
    ("/?q=\"<>^`{}'()*!$&+,;=:@~_-.",) * 2,
    ("/hook?",) * 2,
    ("/%41%c3%a9?%41=%c3%a9+%20",) * 2,
    ("?only=query", "/?only=query"),
    ("", "/"),
    ("/a#fragment?b", "/a"),
    ("/größe?q=a b", "/gr%C3%B6%C3%9Fe?q=a%20b"),
    ("/a\tb\r\nHost: evil", "/a%09b%0D%0AHost:%20evil"),
]


@pytest.mark.parametrize(("target", "arrives"), _TARGETS)
def test_only_invalid_characters_are_encoded(target: str, arrives: str) -> None:
    for origin in ("https://pay.example.com:8443", "http://127.0.0.1", "http://[::1]:8080"):
        assert make_exact_url(origin + target).raw_path_qs == arrives
    assert encode_invalid_characters(arrives) == arrives


def test_the_host_is_taken_from_the_url() -> None:
    assert make_exact_url("HTTPS://BÜCHER.example/ä").raw_host == "xn--bcher-kva.example"
    url = make_exact_url("https://user:p%40ss@pay.example.com:8443/a@b:c?d@e")
    assert (url.raw_host, url.port, url.password) == ("pay.example.com", 8443, "p@ss")
    for odd in ("", "/path", "pay.example.com/a", "https:///a", "https://?a", "mailto:a@b.example"):
        with pytest.raises(ValueError, match=r"."):
            make_exact_url(odd)


async def _gateway(url: str) -> None:
    http = GatewayHttpClient(timeout_s=5.0, response_bytes_max=100)
    try:
        assert isinstance(await http.request("POST", url, headers={}, body=b"{}"), HttpResponse)
    finally:
        await http.close()


async def _node(url: str) -> None:
    session = make_session(None)
    endpoint = RpcEndpoint(
        "ethereum", "ethereum-1", url, limits=RpcLimits(), session=session, clock=time.time
    )
    try:
        await endpoint.request([RpcCall("eth_chainId", [])], lambda answers: answers)
    finally:
        await session.close()


async def _picture(url: str) -> None:
    fetcher = PictureFetcher(EgressRules(sandbox=True))
    try:
        await fetcher.fetch(url)
    finally:
        await fetcher.close()


@pytest.mark.parametrize(("target", "arrives"), [each for each in _TARGETS if "#" not in each[0]])
@pytest.mark.parametrize("call", [_gateway, _node, _picture])
async def test_each_client_sends_the_url_unchanged(
    call: Callable[[str], Awaitable[None]], target: str, arrives: str
) -> None:
    received: list[bytes] = []
    response = reply("200 OK", b'{"jsonrpc":"2.0","id":1,"result":"0x1"}')
    async with serve_responses(response, received) as origin:
        await call(origin + target)
    assert received[0].split(b"\r\n")[0].split(b" ", 1)[1] == f"{arrives} HTTP/1.1".encode()


async def test_an_invalid_url_is_a_failed_request_and_not_an_exception() -> None:
    http = GatewayHttpClient(timeout_s=5.0, response_bytes_max=100)
    for url in ("nonsense", "http://", "http://h:99999999/"):
        assert isinstance(await http.request("GET", url, headers={}), OutcomeUnknown)
    await http.close()
    with pytest.raises(PictureUnavailableError):
        await _picture("https://shop.example\\@evil.example/a.png")


async def test_a_bucket_prefix_can_be_percent_encoded() -> None:
    received: list[bytes] = []
    async with serve_responses(reply("404 Not Found", b""), received) as origin:
        source = S3Source(
            f"{origin}/settlements/of%20ours",
            S3Credentials(region="us-east-1", key_id="k", secret_key="s"),
        )
        with pytest.raises(SourceUnavailableError):
            await anext(source.walk_files())
        await source.close()
    target = b"/settlements?encoding-type=url&list-type=2&prefix=of%20ours%2F"
    assert b"GET " + target + b" HTTP/1.1" in received[0]


def test_the_http_library_would_change_the_example_without_this_module() -> None:
    """If this test fails, the module is no longer needed."""
    url = aiohttp.client.URL("https://h.example" + _TARGETS[0][0])
    assert url.raw_path_qs != _TARGETS[0][1]
