import asyncio
import socket
import threading

import aiohttp
import pytest

from payintent.http import egress
from payintent.http.egress import (
    CheckedResolver,
    EgressRefusedError,
    EgressRules,
    check_callback_registration,
    check_callback_url,
    find_address_refusal,
    open_checked_socket,
)

METADATA_AND_LINK_LOCAL = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.0.1",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "fe80::1%1",
    "febf::1",
]
SPECIAL_PURPOSE = [
    *METADATA_AND_LINK_LOCAL,
    "0.0.0.0",  # noqa: S104 - Linux connects it to loopback
    "0.1.2.3",
    "::",
    "224.0.0.1",
    "239.255.255.255",
    "ff02::1",
    "ff0e::1",
    "255.255.255.255",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # Teredo
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "3fff::1",
    "2620:4f:8000::1",
    "fec0::1",
    "100::1",
    "5f00::1",
    "4000::1",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.1",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "240.0.0.1",
    "254.255.255.255",
]
SANDBOX_ONLY = [
    "127.0.0.1",
    "127.255.255.254",
    "::1",
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.255.255",
    "fc00::1",
    "fd12:3456:789a::1",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "128.0.0.1",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:80b::200e",
    "2001:4860:4860::8888",
]

UNUSUAL_NOTATIONS = [
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "127.1",
    "127.0.1",
    "0177.0.0.1",
    "127.0.0.01",
    "0",
    "0x",
    "127.0.0.1.",
    "8.8.8.8.",
    "134744072",  # 8.8.8.8
    "1.2.3.256",
    "1.2.3.4.5",
    "name.0x7f",
    "[::1%251]",
    "[fe80::1%25eth0]",
    "[v1.a]",
]


@pytest.mark.parametrize("address", SPECIAL_PURPOSE)
@pytest.mark.parametrize("sandbox", [False, True])
def test_special_purpose_addresses_are_refused_even_in_the_sandbox(address, sandbox):
    assert find_address_refusal(address, EgressRules(sandbox=sandbox))


@pytest.mark.parametrize("address", SANDBOX_ONLY)
def test_loopback_and_private_addresses_are_allowed_only_in_the_sandbox(address):
    assert find_address_refusal(address)
    assert find_address_refusal(address, rules=EgressRules(sandbox=True)) is None


@pytest.mark.parametrize("address", PUBLIC)
@pytest.mark.parametrize("sandbox", [False, True])
def test_public_addresses_are_allowed(address, sandbox):
    assert find_address_refusal(address, EgressRules(sandbox=sandbox)) is None


def test_there_are_enough_test_vectors():
    assert len(SPECIAL_PURPOSE) + len(SANDBOX_ONLY) + len(PUBLIC) >= 55


@pytest.mark.parametrize("address", SPECIAL_PURPOSE + SANDBOX_ONLY)
def test_a_url_with_a_refused_literal_address_is_refused(address):
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(EgressRefusedError):
        check_callback_url(f"https://{host}/hook")


@pytest.mark.parametrize("sandbox", [False, True])
@pytest.mark.parametrize("host", UNUSUAL_NOTATIONS)
def test_an_address_in_an_unusual_notation_is_refused(host, sandbox):
    with pytest.raises(EgressRefusedError):
        check_callback_url(f"https://{host}/hook", EgressRules(sandbox=sandbox))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "scheme"),
        ("example.com/hook", "scheme"),
        ("ftp://example.com/", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("gopher://example.com:80/", "scheme"),
        ("https://user@example.com/", "user"),
        ("https://user:word@example.com/", "user"),
        ("https://1.1.1.1@127.0.0.1/", "user"),
        ("https://example.com/#top", "fragment"),
        ("https://example.com/#", "fragment"),
        ("https://example.com:22/", "port"),
        ("https://example.com:5432/", "port"),
        ("https://example.com:0/", "port"),
        ("https://example.com:65536/", "not valid"),
        ("https://example.com:a/", "not valid"),
        ("https://[::1/", "not valid"),
        ("https:///hook", "host"),
        ("https://", "host"),
        ("https://" + "a." * 127 + "com/", "host"),
        ("https://exa_mple..com/", "not a valid name"),
        ("https://-a.com/", "not a valid name"),
        ("https://ex%61mple.com/", "not a valid name"),
        ("https://" + "a" * 64 + ".com/", "not a valid name"),
        ("https://münchen.example/", "ASCII"),
        ("https://\uff11\uff12\uff17.0.0.1/", "ASCII"),
        ("https://127\u30020\u30020\u30021/", "ASCII"),
        ("https://example.com\\@127.0.0.1/", "ASCII"),
        ("https://example.com/\r\nHost: evil", "ASCII"),
        ("https://exam\tple.com/", "ASCII"),
        (" https://example.com/", "ASCII"),
        ("https://example.com/" + "a" * 2048, "longer"),
    ],
)
def test_an_invalid_url_is_refused_with_its_reason(url, reason):
    with pytest.raises(EgressRefusedError, match=reason):
        check_callback_url(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM:443/Hook?a=B&c=%2F", "https://example.com/Hook?a=B&c=%2F"),
        ("http://example.com:8080/hook", "http://example.com:8080/hook"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("https://xn--mnchen-3ya.example/", "https://xn--mnchen-3ya.example/"),
        ("https://example.com./", "https://example.com./"),
        ("https://1.1.1.1/", "https://1.1.1.1/"),
        ("https://[2606:4700:4700:0::1111]/", "https://[2606:4700:4700::1111]/"),
    ],
)
def test_an_allowed_url_is_normalized(url, expected):
    assert check_callback_url(url).url == expected


def test_the_sandbox_allows_every_port_except_0():
    assert (
        check_callback_url("http://127.0.0.1:5000/hook", rules=EgressRules(sandbox=True)).port
        == 5000
    )
    for url, sandbox in (("http://example.com:5000/", False), ("http://127.0.0.1:0/", True)):
        with pytest.raises(EgressRefusedError, match="port"):
            check_callback_url(url, EgressRules(sandbox=sandbox))


async def test_registration_refuses_a_name_if_any_of_its_addresses_is_refused():
    with pytest.raises(EgressRefusedError, match=r"has an address that is not allowed: private"):
        await check_callback_registration(
            "https://example.com/", lookup=_resolve_to("93.184.216.34", "10.0.0.1")
        )


async def test_registration_accepts_a_name_with_only_public_addresses():
    lookup = _resolve_to("93.184.216.34", "2606:4700:4700::1111")
    target = await check_callback_registration("https://example.com/", lookup=lookup)
    assert (target.host, target.port) == ("example.com", 443)


async def test_registration_reports_a_name_that_does_not_resolve():
    with pytest.raises(EgressRefusedError, match=r"nowhere\.invalid cannot be resolved"):
        await check_callback_registration("https://nowhere.invalid/", lookup=_resolve_to())


@pytest.mark.parametrize("sandbox", [False, True])
async def test_results_of_the_system_resolver_are_checked(sandbox):
    if sandbox:
        await check_callback_registration("http://localhost:5000/", EgressRules(sandbox=sandbox))
    else:
        with pytest.raises(EgressRefusedError, match="loopback"):
            await check_callback_registration("http://localhost/", EgressRules(sandbox=sandbox))


async def test_a_name_that_the_c_library_parses_as_an_address_is_checked_as_an_address():
    resolver = CheckedResolver()
    with pytest.raises(EgressRefusedError, match="loopback"):
        await resolver.resolve("0x7f.1")
    await resolver.close()


async def test_a_slow_lookup_times_out():
    is_queried = asyncio.Event()

    async def never(_host):
        is_queried.set()
        await asyncio.Event().wait()
        return []

    resolver = CheckedResolver(timeout_s=0.02, lookup=never)
    with pytest.raises(OSError, match="not resolved in time"):
        await asyncio.wait_for(resolver.resolve("slow.example"), 1)
    assert is_queried.is_set()
    await resolver.close()


async def test_hundreds_of_lookups_that_hang_do_not_delay_another_host(monkeypatch):
    released = threading.Event()

    def query(host: str) -> list[str]:
        if host.startswith("dead"):
            released.wait()
        return ["93.184.216.34"]

    monkeypatch.setattr(egress, "_query_system_addresses", query)
    resolver = CheckedResolver(timeout_s=10)
    dead = [asyncio.create_task(resolver.resolve(f"dead{number}.example")) for number in range(400)]
    try:
        await asyncio.sleep(0)  # start the lookups
        [result] = await asyncio.wait_for(resolver.resolve("shop.example"), 5)
    finally:
        released.set()
        await asyncio.gather(*dead, return_exceptions=True)
        await resolver.close()
    assert result["host"] == "93.184.216.34"


async def test_concurrent_lookups_of_a_name_share_a_query_and_its_result_is_not_cached():
    queries = []
    answer = asyncio.Event()

    async def slow(host):
        queries.append(host)
        await answer.wait()
        return ["93.184.216.34"]

    resolver = CheckedResolver(lookup=slow)
    lookups = [asyncio.ensure_future(resolver.resolve("one.example")) for _ in range(50)]
    while not queries:
        await asyncio.sleep(0)
    answer.set()
    assert all(await asyncio.gather(*lookups))
    assert queries == ["one.example"]
    await resolver.resolve("one.example")
    assert len(queries) == 2  # the result is not cached
    await resolver.close()


async def test_no_connection_is_made_to_a_name_that_moves_to_a_refused_address(trap):
    answers = {"now": ["93.184.216.34"]}

    async def lookup(_host):
        return answers["now"]

    url = "http://rebind.example:8080/hook"
    await check_callback_registration(url, lookup=lookup)
    answers["now"] = ["127.0.0.1"]
    with pytest.raises(aiohttp.ClientConnectorDNSError) as error:
        await _fetch(f"http://rebind.example:{trap.port}/", CheckedResolver(lookup=lookup))
    assert isinstance(error.value.os_error, EgressRefusedError)
    assert trap.is_untouched()


async def test_a_refused_address_of_a_name_blocks_all_its_addresses(trap):
    # In the sandbox, the trap's address would be allowed.
    resolver = CheckedResolver(
        rules=EgressRules(sandbox=True), lookup=_resolve_to("127.0.0.1", "169.254.169.254")
    )
    with pytest.raises(aiohttp.ClientConnectorDNSError):
        await _fetch(f"http://split.example:{trap.port}/", resolver)
    assert trap.is_untouched()


async def test_no_socket_is_opened_to_a_literal_that_bypasses_the_resolver(trap):
    # aiohttp does not resolve literals, so only the socket factory can refuse this address.
    with pytest.raises(aiohttp.ClientConnectorError) as error:
        await _fetch(f"http://127.0.0.1:{trap.port}/", CheckedResolver(), open_checked_socket)
    assert isinstance(error.value.os_error, EgressRefusedError)
    assert trap.is_untouched()


async def test_the_trap_catches_an_allowed_connection(trap):
    resolver = CheckedResolver(rules=EgressRules(sandbox=True), lookup=_resolve_to("127.0.0.1"))
    fetch = asyncio.ensure_future(_fetch(f"http://good.example:{trap.port}/", resolver))
    await trap.catch()
    with pytest.raises(aiohttp.ClientConnectionError):
        await fetch


def test_a_socket_is_opened_only_for_an_allowed_address():
    inet = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    open_checked_socket((*inet, ("127.0.0.1", 80)), rules=EgressRules(sandbox=True)).close()
    open_checked_socket((*inet, ("93.184.216.34", 80))).close()
    with pytest.raises(EgressRefusedError):
        open_checked_socket((*inet, ("127.0.0.1", 80)))


def _resolve_to(*addresses):
    async def lookup(_host):
        return list(addresses)

    return lookup


async def _fetch(url, resolver, socket_factory=None):
    connector = aiohttp.TCPConnector(
        resolver=resolver, use_dns_cache=False, socket_factory=socket_factory
    )
    async with aiohttp.ClientSession(connector=connector) as session:
        try:
            await session.post(url)
        finally:
            await resolver.close()
