"""deploy/nginx.conf has the service's limits, and blocks requests that must not pass."""

import re

import pytest
from starlette.routing import Route

from payintent.http.server import _KEEP_ALIVE_S
from payintent.portal.routes import PORTAL_ROUTES
from payintent.runtime.settings import Settings
from tests.docs.nginx import read, seconds, size
from tests.docs.reading import page, spans
from tests.support.routes import OPERATOR_ROUTES, ROUTES

_CONF = read(page("deploy/nginx.conf"))
_SERVER = _CONF.inner("server")[-1]
_INSIDE = {"/readyz"}  # it says how the database is
_ID, _SESSION = "cs_0123456789abcdeF", "sess_0123456789abcdefghijkL"


def _default(name: str) -> int:
    return int(Settings.model_fields[name].default)


def _paths(routes: list[Route]) -> list[str]:
    ids = {"{checkout_id}": _ID, "{session_id}": _SESSION}
    return [re.sub(r"\{\w+_id\}", lambda name: ids.get(name[0], name[0]), route.path)
            for route in routes]  # fmt: skip


def _reaches(path: str) -> bool:
    return _SERVER.location(path).all("proxy_pass") == [["http://payintent"]]


def test_the_page_names_every_address_that_comes_through() -> None:
    items = page("docs/operate/install.md").split("\n- ")
    [line] = [item for item in items if item.startswith("**Public paths**")]
    named = {span.rstrip("/") for span in spans(" ".join(line.split()).partition("Return 404")[0])}
    public = [item for item in _SERVER.inner("location") if item.all("proxy_pass")]
    assert named == {f"/{item.words[-1].lstrip('^/').split('/')[0]}" for item in public}


def test_the_proxys_limits_are_those_of_the_service() -> None:
    assert size(_SERVER.one("client_max_body_size")[0]) == _default("body_bytes_max")
    callbacks = _SERVER.location("/v1/callbacks/simulator/1")
    assert size(callbacks.one("client_max_body_size")[0]) == _default("callback_bytes_max")
    number, each = _SERVER.one("large_client_header_buffers")
    assert int(number) * size(each) == _default("header_bytes_max")
    assert seconds(_SERVER.one("client_header_timeout")[0]) == _default("header_timeout_s")
    assert size(_SERVER.one("client_body_buffer_size")[0]) >= _default("callback_bytes_max")


def test_the_proxy_waits_for_the_two_gateways_that_a_selection_may_ask() -> None:
    assert seconds(_SERVER.one("proxy_read_timeout")[0]) > 2 * _default("gateway_timeout_s")


def test_the_proxy_lets_go_of_an_idle_connection_before_the_service_does() -> None:
    [upstream] = _CONF.inner("upstream")
    assert seconds(upstream.one("keepalive_timeout")[0]) < _KEEP_ALIVE_S
    assert 2 * seconds(upstream.one("keepalive_timeout")[0]) < _default("drain_s")
    assert _SERVER.one("proxy_http_version") == ["1.1"]


def test_a_process_that_refuses_or_dies_is_passed_over_and_none_is_left_out_for_a_while() -> None:
    """By default, nginx avoids a failed server for 10 s, so a rolling restart would use up all."""
    [upstream] = _CONF.inner("upstream")
    servers = upstream.all("server")
    assert len(servers) > 1
    assert {server[1] for server in servers} == {"max_fails=0"}
    assert _SERVER.one("proxy_next_upstream") == ["error", "timeout", "non_idempotent"]
    within, whole = (_SERVER.one(f"proxy_{name}_timeout")[0] for name in ("next_upstream", "read"))
    assert seconds(within) < seconds(whole)  # what took that long is not begun anew


def test_what_has_no_idempotency_key_is_not_sent_twice() -> None:
    clock = _SERVER.location("/v1/test/clock/advance")
    assert clock.one("proxy_next_upstream") == ["off"]
    assert clock.all("limit_req") == _SERVER.location("/v1/payments").all("limit_req")


@pytest.mark.parametrize("path", sorted({*_paths([*ROUTES, *PORTAL_ROUTES])} - _INSIDE))
def test_every_public_route_comes_through(path: str) -> None:
    assert _reaches(path), "deploy/nginx.conf has no location for it"


@pytest.mark.parametrize("path", sorted({*_INSIDE, *_paths(OPERATOR_ROUTES)} - {"/healthz"}))
def test_no_route_of_the_operator_comes_through(path: str) -> None:
    assert not _reaches(path)
    assert _SERVER.location(path).one("return")[0] == "404"


@pytest.mark.parametrize(
    "path",
    [
        *(item for item in _paths(ROUTES) if _ID in item or _SESSION in item),
        f"/v1/checkout/{_ID}/events",
        "/merchant/link/{token}",
    ],
)
def test_a_path_with_a_capability_is_limited_and_never_cached_nor_in_the_error_log(
    path: str,
) -> None:
    location = _SERVER.location(path)
    assert location.one("error_log") == ["/dev/null", "emerg"]
    assert location.one("proxy_cache") == ["off"]
    assert location.one("limit_req")[0] == "zone=payintent_checkout"
    assert location.all("limit_conn")


def test_pictures_that_the_service_would_fetch_are_limited_by_address() -> None:
    location = _SERVER.location("/c/static/pictures/x.webp")
    assert location.one("limit_req")[0] == "zone=payintent_pictures"
    assert location.all("limit_conn")
    assert not _SERVER.location("/c/static/0123/checkout.js").all("limit_req")


def test_a_stream_is_not_buffered() -> None:
    location = _SERVER.location(f"/v1/checkout/{_ID}/events")
    assert location.one("proxy_buffering") == ["off"]
    assert seconds(location.one("proxy_read_timeout")[0]) >= 3600


def test_what_the_caller_says_of_itself_is_removed_or_replaced() -> None:
    sent = dict(_SERVER.all("proxy_set_header"))
    fields = Settings.model_fields
    country, secret = fields["edge_country_header"].default, fields["edge_secret_header"].default
    assert (sent[country], sent[secret]) == ("$payintent_country", "$payintent_edge_secret")
    assert sent["X-Forwarded-For"] == "$remote_addr"
    removed = ("CF-IPCountry", "Forwarded", "X-Real-IP", "X-Forwarded-Host")
    assert [sent[name] for name in removed] == [""] * len(removed)
    # A location that sets a header of its own would pass all the others on as they came.
    assert [block.words for block in _SERVER.blocks if block.all("proxy_set_header")] == []


def test_the_edge_networks_headers_pass_from_its_own_addresses_alone() -> None:
    for name in ("$payintent_country", "$payintent_edge_secret"):
        [chosen] = _CONF.inner("map", "$payintent_edge", name)
        assert chosen.one("default") == [""]
        assert len(chosen.directives) == 2
    [edge] = _CONF.inner("geo", "$realip_remote_addr", "$payintent_edge")
    ranges = [directive[0] for directive in edge.directives if directive[1:] == ["1"]]
    assert edge.one("default") == ["0"]
    assert ranges == [one for [one] in _SERVER.all("set_real_ip_from")] == ["192.0.2.0/24"]


@pytest.mark.parametrize(
    ("path", "logged"),
    [
        (f"/c/{_ID}", "/c/cs_0123***"),
        (f"/v1/checkout/{_ID}/quotes", "/v1/checkout/cs_0123***/quotes"),
        (f"/nowhere/{_ID}/{_ID}", "/nowhere/cs_0123***/cs"),
        (f"/v1/onchain/sessions/{_SESSION}", "/v1/onchain/sessions/sess_0123***"),
        (
            f"/v1/onchain/sessions/{_SESSION}/transactions",
            "/v1/onchain/sessions/sess_0123***/transactions",
        ),
        ("/merchant/link/A-token_that-signs-in", "/merchant/link/***"),
        ("/c/wallet/open/A-code_that-leads-to-a-checkout", "/c/wallet/open/***"),
        ("/v1/payments", "/v1/payments"),
        ("/c/static/checkout.css", "/c/static/checkout.css"),
    ],
)
def test_a_capability_is_masked_in_the_access_log(path: str, logged: str) -> None:
    assert _logged(path) == logged


def test_the_access_log_holds_nothing_that_repeats_the_path_unmasked() -> None:
    for server in _CONF.inner("server")[1:]:
        assert server.one("access_log")[1] == "payintent"
    [words] = _CONF.all("log_format")
    names = set(re.findall(r"\$(\w+)", "".join(words)))
    assert "payintent_path" in names
    leaking = {"request", "request_uri", "uri", "args", "query_string", "document_uri"}
    assert not names & (leaking | {"http_referer", "http_cookie", "http_authorization"})


def test_only_tls_that_is_still_sound_is_spoken() -> None:
    assert _SERVER.one("ssl_protocols") == ["TLSv1.2", "TLSv1.3"]
    assert ["443", "ssl", "http2"] in _SERVER.all("listen")
    for plain in (item for item in _CONF.inner("server") if ["80"] in item.all("listen")):
        assert not any(block.all("proxy_pass") for block in plain.blocks)


def _logged(path: str) -> str:
    [chosen] = _CONF.inner("map", "$uri", "$payintent_path")
    assert chosen.one("default") == ["$uri"]
    for pattern, shown in chosen.directives[1:]:
        found = re.search(pattern.removeprefix("~").replace("(?<", "(?P<"), path)
        if found is not None:
            return re.sub(r"\$(\w+)", lambda name, found=found: found[name[1]] or "", shown)
    return path
