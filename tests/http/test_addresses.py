"""The client's address: the trusted sources, and the request limit per address."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from starlette.requests import Request

from payintent.core.addresses import UNREADABLE_ADDRESS
from payintent.core.errors import ErrorCode, RefusedError
from payintent.fraud.model import FraudRuleKind
from payintent.fraud.operations import AddFraudRule
from payintent.http.viewer import ViewerReader
from payintent.merchants.limits import AddressRateLimiter
from payintent.runtime.settings import Settings
from tests.support.arrange import refusal
from tests.support.world import Api

_PROXIES = "10.0.0.0/8, 2001:db8:ffff::/48, 127.0.0.1"
_SETTINGS: dict[str, Any] = {
    "database_url": "postgresql://nowhere",
    "pepper": "",
    "keyring": "",
    "edge_trusted_proxies": _PROXIES,
}


def _request(peer: str | None, *forwarded: str, **others: str) -> Request:
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    headers += [(name.replace("_", "-").encode(), value.encode()) for name, value in others.items()]
    client = None if peer is None else (peer, 4711)
    return Request({"type": "http", "headers": headers, "client": client})


def _address(peer: str | None, *forwarded: str, proxies: str = _PROXIES) -> str | None:
    reader = ViewerReader(Settings.model_validate(_SETTINGS | {"edge_trusted_proxies": proxies}))
    return reader.get_viewer_address(_request(peer, *forwarded))


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        # A trusted proxy appends the client. Earlier entries can be forged.
        ("10.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["198.51.100.1, 192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["127.0.0.1, 192.0.2.7, 10.9.9.9"], "192.0.2.7"),
        ("10.0.0.1", ["198.51.100.1", "192.0.2.7 ,10.2.3.4"], "192.0.2.7"),
        ("2001:db8:ffff::1", ["2001:DB8:1:0::9"], "2001:db8:1::9"),
        # If the peer is not a trusted proxy, its headers are ignored.
        ("192.0.2.7", [], "192.0.2.7"),
        ("192.0.2.7", ["198.51.100.1"], "192.0.2.7"),
        ("192.0.2.7", ["10.0.0.1"], "192.0.2.7"),
        # A dual-stack server shows IPv4 peers as mapped addresses.
        ("::ffff:10.0.0.1", ["192.0.2.7"], "192.0.2.7"),
        ("::ffff:192.0.2.7", ["198.51.100.1"], "192.0.2.7"),
        ("10.0.0.1", ["::ffff:192.0.2.7"], "192.0.2.7"),
        ("10.0.0.1", ["192.0.2.7, ::ffff:10.2.3.4"], "192.0.2.7"),
        # Ports, brackets, quotes and empty entries, as proxies and load balancers write them.
        ("10.0.0.1", ["198.51.100.7:51234"], "198.51.100.7"),
        ("10.0.0.1", ["192.0.2.7, 192.0.2.8:443"], "192.0.2.8"),
        ("10.0.0.1", ["192.0.2.7, 10.0.0.9:443"], "192.0.2.7"),
        ("10.0.0.1", ["[2001:db8:1::9]:443"], "2001:db8:1::9"),
        ("10.0.0.1", ["[2001:db8:1::9]"], "2001:db8:1::9"),
        ("10.0.0.1", ["192.0.2.7, [2001:db8:ffff::1]:443"], "192.0.2.7"),
        ("10.0.0.1", ['"[2001:db8:1::9]:443"'], "2001:db8:1::9"),
        ("10.0.0.1", ["[::ffff:192.0.2.7]:443"], "192.0.2.7"),
        ("10.0.0.1", ["192.0.2.7:_port"], "192.0.2.7"),
        ("10.0.0.1", ["192.0.2.7,"], "192.0.2.7"),
        ("10.0.0.1", [",, 192.0.2.7 ,\t,"], "192.0.2.7"),
        # Invalid entries do not matter if a trusted proxy appends a valid address.
        ("10.0.0.1", ["unknown, _hidden, \xff, 192.0.2.7"], "192.0.2.7"),
        # A proxy's own request, such as a health check.
        ("10.0.0.1", [], None),
        ("10.0.0.1", [""], None),
        ("10.0.0.1", [" , ,"], None),
        # A trusted proxy sends an unreadable address.
        ("10.0.0.1", ["10.0.0.2, 10.0.0.3"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["192.0.2.7, unknown"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["192.0.2.7, UNKNOWN"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["_hidden"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["_hidden:443"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["192.0.2.7:"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["192.0.2.7:443:1"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["192.0.2.7;443"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["[192.0.2.7"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["192.0.2.777"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["shop.example"], UNREADABLE_ADDRESS),
        ("10.0.0.1", ["\xff"], UNREADABLE_ADDRESS),
        (None, ["192.0.2.7"], UNREADABLE_ADDRESS),
        ("", ["192.0.2.7"], UNREADABLE_ADDRESS),
        ("/run/payintent.sock", ["192.0.2.7"], UNREADABLE_ADDRESS),
    ],
)
def test_the_client_address_is_the_last_address_that_is_not_a_trusted_proxy(
    peer: str | None, forwarded: list[str], expected: str | None
) -> None:
    assert _address(peer, *forwarded) == expected


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        (["for=192.0.2.7"], "192.0.2.7"),
        (["For=192.0.2.7"], "192.0.2.7"),
        (["FOR=192.0.2.7;proto=http;by=203.0.113.43"], "192.0.2.7"),
        (["proto=https ; for=192.0.2.7 ; by=_edge"], "192.0.2.7"),
        (['for="192.0.2.7:51234"'], "192.0.2.7"),
        (["for=192.0.2.7:51234"], "192.0.2.7"),  # not a valid token, but some proxies send it
        (['for="[2001:db8:1::9]:4711"'], "2001:db8:1::9"),
        (['for="[2001:db8:1::9]"'], "2001:db8:1::9"),
        (["for=[2001:db8:1::9]:4711"], "2001:db8:1::9"),
        (['for="192.0.2.7:_port"'], "192.0.2.7"),
        (["for=198.51.100.1, for=192.0.2.7"], "192.0.2.7"),
        (["for=198.51.100.1", "for=192.0.2.7, for=10.1.1.1"], "192.0.2.7"),
        (["for=unknown, for=_hidden, for=192.0.2.7"], "192.0.2.7"),
        (['for=192.0.2.7;host="a, b; for=198.51.100.1"'], "192.0.2.7"),
        ([r'for=192.0.2.7;host="a\", for=198.51.100.1"'], "192.0.2.7"),
        ([",for=192.0.2.7;, ,"], "192.0.2.7"),
        ([""], None),
        ([","], None),
        (["for=192.0.2.7, for=unknown"], UNREADABLE_ADDRESS),
        (["for=_hidden"], UNREADABLE_ADDRESS),
        (['for="_SEVKISEK"'], UNREADABLE_ADDRESS),
        (["for=192.0.2.7, by=203.0.113.43"], UNREADABLE_ADDRESS),
        (["for=198.51.100.1;for=192.0.2.7"], UNREADABLE_ADDRESS),
        (["192.0.2.7"], UNREADABLE_ADDRESS),
        (["for = 192.0.2.7"], UNREADABLE_ADDRESS),
        # An unclosed quotation mark from the client swallows the entry that the proxy appends.
        (['for=198.51.100.1;x=", for=192.0.2.7'], UNREADABLE_ADDRESS),
        (['for=198.51.100.1, for=", for="[2001:db8:1::9]:443"'], UNREADABLE_ADDRESS),
        (['for=198.51.100.1;x="', "for=192.0.2.7"], UNREADABLE_ADDRESS),
    ],
)
def test_the_forwarded_header_is_parsed_according_to_rfc_7239(
    forwarded: list[str], expected: str | None
) -> None:
    headers = [(b"forwarded", value.encode()) for value in forwarded]
    request = Request({"type": "http", "headers": headers, "client": ("10.0.0.1", 4711)})
    assert ViewerReader(Settings.model_validate(_SETTINGS)).get_viewer_address(request) == expected


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("", UNREADABLE_ADDRESS), ("X-Forwarded-For", "192.0.2.7"), ("Forwarded", "192.0.2.8")],
)
def test_two_headers_must_agree_unless_a_setting_selects_a_header(
    setting: str, expected: str
) -> None:
    """A client can set a header that its proxy does not replace."""
    settings = Settings.model_validate(_SETTINGS | {"edge_address_header": setting})
    request = _request("10.0.0.1", "192.0.2.7", forwarded="for=192.0.2.8")
    assert ViewerReader(settings).get_viewer_address(request) == expected
    agreeing = _request("10.0.0.1", "192.0.2.7:80", forwarded='for="192.0.2.7:443";proto=https')
    assert ViewerReader(settings).get_viewer_address(agreeing) == "192.0.2.7"


def test_an_unreadable_address_is_counted_each_time_and_logged_once_a_minute(
    capfd: pytest.CaptureFixture[str],
) -> None:
    clock = _Clock()
    edge = ViewerReader(Settings.model_validate(_SETTINGS), clock)

    def read_counter() -> float:
        name = "payintent_viewer_addresses_unreadable_total"
        return REGISTRY.get_sample_value(name, {"reason": "malformed"}) or 0

    before = read_counter()
    for wait_s in (0, 1, 58, 2):
        clock.now += wait_s
        assert edge.get_viewer_address(_request("10.0.0.1", "_hidden")) == UNREADABLE_ADDRESS
    assert read_counter() == before + 4
    logged = "".join(capfd.readouterr())
    assert logged.count("viewer_address_unreadable") == 2
    assert "_hidden" in logged


def test_clients_with_unreadable_addresses_share_a_bucket() -> None:
    limiter, _ = _limiter(per_s=1, burst=2)
    assert _count_allowed(limiter, UNREADABLE_ADDRESS, 5) == 2


def test_there_is_no_client_address_without_a_trusted_proxy() -> None:
    for proxies in ("", " ", ",", " , "):
        assert _address("192.0.2.7", "198.51.100.1", proxies=proxies) is None


@pytest.mark.parametrize("proxies", ["10.0.0.1/8", "proxy.example", "10.0.0.0/33"])
def test_an_invalid_proxy_network_is_refused_at_startup(proxies: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        _address("10.0.0.1", proxies=proxies)


@examples(max_examples=100, deadline=None)
@given(
    client_entries=st.lists(st.sampled_from(["10.0.0.9", "192.0.2.1", "x", "", "::1"]), max_size=4),
    proxy_entries=st.lists(
        st.sampled_from(["10.0.0.2", "::ffff:10.0.0.3", "2001:db8:ffff::1"]), max_size=3
    ),
)
def test_a_client_cannot_forge_the_address_that_a_proxy_appends(
    client_entries: list[str], proxy_entries: list[str]
) -> None:
    """The client sends a header. Each proxy appends the address of its peer."""
    chain = ", ".join([*client_entries, "203.0.113.5", *proxy_entries])
    assert _address("10.0.0.1", chain) == "203.0.113.5"


@pytest.mark.parametrize(
    ("peer", "expected"),
    [("10.0.0.1", "DE"), ("::ffff:10.0.0.1", "DE"), ("192.0.2.7", None), (None, None), ("x", None)],
)
def test_the_country_is_accepted_only_from_a_trusted_proxy_with_the_secret(
    peer: str | None, expected: str | None
) -> None:
    settings = Settings.model_validate(_SETTINGS | {"edge_secret": "s"})
    headers = {"cloudfront_viewer_country": "de", "x_edge_secret": "s"}
    assert ViewerReader(settings).get_viewer_country(_request(peer, **headers)) == expected
    wrong = headers | {"x_edge_secret": "t"}
    assert ViewerReader(settings).get_viewer_country(_request(peer, **wrong)) is None


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def _limiter(per_s: int, burst: int) -> tuple[AddressRateLimiter, _Clock]:
    clock = _Clock()
    limits = {"checkout_per_address_per_s": per_s, "checkout_per_address_burst": burst}
    return AddressRateLimiter(Settings.model_validate(_SETTINGS | limits), clock), clock


def _count_allowed(limiter: AddressRateLimiter, address: str | None, tries: int) -> int:
    return sum(_is_allowed(limiter, address) for _ in range(tries))


def _is_allowed(limiter: AddressRateLimiter, address: str | None) -> bool:
    try:
        limiter.take_token(address)
    except RefusedError as refused:
        return not (refused.code is ErrorCode.RATE_LIMITED and (refused.retry_after_s or 0) >= 1)
    return True


def test_requests_from_an_address_are_limited_by_a_burst_and_a_rate() -> None:
    limiter, clock = _limiter(per_s=4, burst=8)
    assert _count_allowed(limiter, "192.0.2.7", 20) == 8
    clock.now += 0.25
    assert _count_allowed(limiter, "192.0.2.7", 20) == 1
    clock.now += 1
    assert _count_allowed(limiter, "192.0.2.7", 20) == 4
    clock.now += 3600
    assert _count_allowed(limiter, "192.0.2.7", 20) == 8


def test_each_address_has_a_separate_bucket_and_no_address_means_no_limit() -> None:
    limiter, _ = _limiter(per_s=1, burst=2)
    assert _count_allowed(limiter, "192.0.2.7", 5) == 2
    assert _count_allowed(limiter, "192.0.2.8", 5) == 2
    assert _count_allowed(limiter, None, 50) == 50
    unlimited, _ = _limiter(per_s=0, burst=1)
    assert _count_allowed(unlimited, "192.0.2.7", 50) == 50


def test_an_ipv6_network_shares_a_bucket() -> None:
    limiter, _ = _limiter(per_s=1, burst=3)
    assert sum(_count_allowed(limiter, f"2001:db8::{item:x}", 1) for item in range(10)) == 3
    assert _count_allowed(limiter, "2001:db8:0:1::1", 5) == 3


def test_buckets_that_are_full_again_are_deleted() -> None:
    limiter, clock = _limiter(per_s=1_000, burst=1)
    for item in range(20_500):
        limiter.take_token(f"10.{item >> 16}.{item >> 8 & 255}.{item & 255}")
        clock.now += 0.01
    assert len(limiter._buckets._full_at) <= 20_000


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A burst of one request, with almost no refill during a test."""
    return settings.model_copy(
        update={
            "edge_trusted_proxies": "127.0.0.1",
            "checkout_per_address_per_s": 1,
            "checkout_per_address_burst": 2,
        }
    )


async def _exhaust(api: Api, path: str, address: str) -> Any:
    """Send requests until one is rejected, because the bucket refills if the machine is slow."""
    for _ in range(100):
        answer = await api.send("GET", path, headers={"X-Forwarded-For": address})
        if answer.status == 429:
            return answer
    raise AssertionError("no request was rejected")


async def test_checkout_routes_and_the_page_are_rate_limited_by_address(api: Api) -> None:
    created = await api.create()
    checkout_id = created.json["checkout_id"]
    rejection = await _exhaust(api, f"/v1/checkout/{checkout_id}", "192.0.2.7")
    assert refusal(rejection) == (429, "RATE_LIMITED")
    assert int(rejection.headers["Retry-After"]) >= 1
    assert rejection.headers["Access-Control-Allow-Origin"] == "*"
    await _exhaust(api, f"/v1/checkout/{checkout_id}/quotes", "192.0.2.8")
    await _exhaust(api, "/v1/checkout/cs_0000000000000000", "192.0.2.9")  # unknown ids count too
    page = await _exhaust(api, f"/c/{checkout_id}", "192.0.2.10")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "Retry-After" in page.headers
    free = await api.send("GET", f"/c/{checkout_id}", headers={"X-Forwarded-For": "192.0.2.11"})
    assert free.status == 200
    for _ in range(5):  # merchant routes are not limited by address
        assert (await api.get(created.json["id"])).status == 200


async def test_a_request_that_reads_the_checkout_twice_counts_once(api: Api) -> None:
    """If it counted twice, a request could do its work and then be rejected."""
    created = await api.create()
    checkout_id = created.json["checkout_id"]
    path = f"/v1/checkout/{checkout_id}"
    email, unknown = {"payer_email": "a@example.com"}, {"payment_method_id": "999"}
    for address, method, target, options, status in (
        ("192.0.2.7", "PATCH", path, {"json": email}, 200),
        ("192.0.2.8", "POST", f"/c/{checkout_id}/select", {"data": unknown}, 404),
    ):
        headers = {"X-Forwarded-For": address}
        assert (await api.send("GET", path, headers=headers)).status == 200
        answer = await api.send(method, target, headers=headers, **options)
        assert answer.status == status, target


@pytest.mark.parametrize(
    ("name", "value", "denied"),
    [
        ("X-Forwarded-For", "203.0.113.9:51234", True),
        ("X-Forwarded-For", "192.0.2.9:51234", False),
        ("Forwarded", 'for="203.0.113.9:51234";proto=https', True),
        ("Forwarded", 'for="192.0.2.9:51234";proto=https', False),
        ("X-Forwarded-For", "unknown", True),
        ("Forwarded", "for=_hidden", True),
        ("Forwarded", "for=", True),
    ],
)
async def test_an_address_rule_matches_an_unreadable_address(
    api: Api, name: str, value: str, denied: bool
) -> None:
    created = await api.create()
    path = f"/v1/checkout/{created.json['checkout_id']}"
    await api.world.perform(AddFraudRule(kind=FraudRuleKind.ADDRESS, value="203.0.113.0/24"))
    answer = await api.send("GET", path, headers={name: value})
    assert ("fds" in answer.json) is denied


async def test_an_address_rule_of_another_merchant_ignores_an_unreadable_address(api: Api) -> None:
    second_merchant = await api.world.add_merchant()
    created = await api.create()
    path = f"/v1/checkout/{created.json['checkout_id']}"
    rule = AddFraudRule(
        kind=FraudRuleKind.ADDRESS, value="203.0.113.9", merchant_id=second_merchant.merchant.id
    )
    await api.world.perform(rule)
    answer = await api.send("GET", path, headers={"X-Forwarded-For": "unknown"})
    assert "fds" not in answer.json


async def test_selections_from_unreadable_addresses_are_counted_together(api: Api) -> None:
    await api.world.perform(
        AddFraudRule(kind=FraudRuleKind.ADDRESS_VELOCITY, count_max=1, window_s=3_600)
    )
    denied: list[bool] = []
    for hop in ("unknown", "_hidden"):
        created = await api.create()
        path = f"/v1/checkout/{created.json['checkout_id']}/quotes"
        quotes = (await api.send("GET", path)).json
        body = {"payment_method_id": quotes["quotes"][0]["payment_method_id"]}
        headers = {"X-Forwarded-For": hop}
        answer = await api.send("POST", path, json=body, headers=headers)
        denied.append("fds" in answer.json)
    assert denied == [False, True]


async def test_a_rule_matches_the_address_that_the_proxy_appends_and_no_forged_address(
    api: Api,
) -> None:
    created = await api.create()
    path = f"/v1/checkout/{created.json['checkout_id']}"
    await api.world.perform(AddFraudRule(kind=FraudRuleKind.ADDRESS, value="203.0.113.0/24"))
    for number, (forwarded, denied) in enumerate(
        (
            ("203.0.113.9", True),
            ("192.0.2.{}, 203.0.113.10", True),
            ("203.0.113.9, 192.0.2.{}", False),
        )
    ):
        headers = {"X-Forwarded-For": forwarded.format(number)}
        answer = await api.send("GET", path, headers=headers)
        assert ("fds" in answer.json) is denied, forwarded
