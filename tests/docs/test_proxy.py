"""deploy/nginx.conf has the same limits as the service, and blocks internal paths."""

import re

import pytest
from starlette.routing import Route

from payintent.http.server import _KEEP_ALIVE_S
from payintent.portal.routes import PORTAL_ROUTES
from payintent.runtime.settings import Settings
from tests.docs.nginx import parse, seconds, size
from tests.docs.parse_pages import page, spans
from tests.support.routes import OPERATOR_ROUTES, ROUTES

_CONF = parse(page("deploy/nginx.conf"))
_SERVER = _CONF.inner("server")[-1]
_INTERNAL = {"/readyz"}  # reports the state of the database
_ID, _SESSION = "cs_0123456789abcdeF", "sess_0123456789abcdefghijkL"


def _default(name: str) -> int:
    return int(Settings.model_fields[name].default)


def _paths(routes: list[Route]) -> list[str]:
    ids = {"{checkout_id}": _ID, "{session_id}": _SESSION}
    return [re.sub(r"\{\w+_id\}", lambda name: ids.get(name[0], name[0]), route.path)
            for route in routes]  # fmt: skip


def _is_proxied(path: str) -> bool:
    return _SERVER.location(path).all("proxy_pass") == [["http://payintent"]]


def test_the_page_lists_every_public_path() -> None:
    items = page("docs/operate/install.md").split("\n- ")
    [line] = [item for item in items if item.startswith("**Public paths**")]
    paths = {span.rstrip("/") for span in spans(" ".join(line.split()).partition("Return 404")[0])}
    public = [item for item in _SERVER.inner("location") if item.all("proxy_pass")]
    assert paths == {f"/{item.words[-1].lstrip('^/').split('/')[0]}" for item in public}


def test_the_proxy_has_the_same_limits_as_the_service() -> None:
    assert size(_SERVER.single("client_max_body_size")[0]) == _default("body_bytes_max")
    callbacks = _SERVER.location("/v1/callbacks/simulator/1")
    assert size(callbacks.single("client_max_body_size")[0]) == _default("callback_bytes_max")
    number, each = _SERVER.single("large_client_header_buffers")
    assert int(number) * size(each) == _default("header_bytes_max")
    assert seconds(_SERVER.single("client_header_timeout")[0]) == _default("header_timeout_s")
    assert size(_SERVER.single("client_body_buffer_size")[0]) >= _default("callback_bytes_max")


def test_the_proxy_timeout_allows_two_gateway_calls_in_a_selection() -> None:
    assert seconds(_SERVER.single("proxy_read_timeout")[0]) > 2 * _default("gateway_timeout_s")


def test_the_proxy_closes_an_idle_connection_before_the_service_does() -> None:
    [upstream] = _CONF.inner("upstream")
    assert seconds(upstream.single("keepalive_timeout")[0]) < _KEEP_ALIVE_S
    assert 2 * seconds(upstream.single("keepalive_timeout")[0]) < _default("drain_s")
    assert _SERVER.single("proxy_http_version") == ["1.1"]


def test_the_proxy_retries_at_another_process_and_never_marks_a_process_as_down() -> None:
    """By default, nginx avoids a failed server for 10 s. A rolling restart may leave no server."""
    [upstream] = _CONF.inner("upstream")
    servers = upstream.all("server")
    assert len(servers) > 1
    assert {server[1] for server in servers} == {"max_fails=0"}
    assert _SERVER.single("proxy_next_upstream") == ["error", "timeout", "non_idempotent"]
    within, total = (
        _SERVER.single(f"proxy_{name}_timeout")[0] for name in ("next_upstream", "read")
    )
    assert seconds(within) < seconds(total)  # a request that took that long is not retried


def test_a_request_without_an_idempotency_key_is_not_resent() -> None:
    clock = _SERVER.location("/v1/test/clock/advance")
    assert clock.single("proxy_next_upstream") == ["off"]
    assert clock.all("limit_req") == _SERVER.location("/v1/payments").all("limit_req")


@pytest.mark.parametrize("path", sorted({*_paths([*ROUTES, *PORTAL_ROUTES])} - _INTERNAL))
def test_every_public_route_is_proxied(path: str) -> None:
    assert _is_proxied(path), "deploy/nginx.conf has no location for it"


@pytest.mark.parametrize("path", sorted({*_INTERNAL, *_paths(OPERATOR_ROUTES)} - {"/healthz"}))
def test_operator_routes_are_not_proxied(path: str) -> None:
    assert not _is_proxied(path)
    assert _SERVER.location(path).single("return")[0] == "404"


@pytest.mark.parametrize(
    "path",
    [
        *(item for item in _paths(ROUTES) if _ID in item or _SESSION in item),
        f"/v1/checkout/{_ID}/events",
        "/merchant/link/{token}",
    ],
)
def test_a_path_with_a_capability_is_rate_limited_and_not_cached_or_in_the_error_log(
    path: str,
) -> None:
    location = _SERVER.location(path)
    assert location.single("error_log") == ["/dev/null", "emerg"]
    assert location.single("proxy_cache") == ["off"]
    assert location.single("limit_req")[0] == "zone=payintent_checkout"
    assert location.all("limit_conn")


def test_requests_for_external_images_are_limited_by_address() -> None:
    location = _SERVER.location("/c/static/pictures/x.webp")
    assert location.single("limit_req")[0] == "zone=payintent_pictures"
    assert location.all("limit_conn")
    assert not _SERVER.location("/c/static/0123/checkout.js").all("limit_req")


def test_a_stream_is_not_buffered() -> None:
    location = _SERVER.location(f"/v1/checkout/{_ID}/events")
    assert location.single("proxy_buffering") == ["off"]
    assert seconds(location.single("proxy_read_timeout")[0]) >= 3600


def test_headers_about_the_client_are_removed_or_replaced() -> None:
    headers = dict(_SERVER.all("proxy_set_header"))
    fields = Settings.model_fields
    country, secret = fields["edge_country_header"].default, fields["edge_secret_header"].default
    assert (headers[country], headers[secret]) == ("$payintent_country", "$payintent_edge_secret")
    assert headers["X-Forwarded-For"] == "$remote_addr"
    removed = ("CF-IPCountry", "Forwarded", "X-Real-IP", "X-Forwarded-Host")
    assert [headers[name] for name in removed] == [""] * len(removed)
    # If a location sets a header, it does not inherit the removed headers.
    assert [block.words for block in _SERVER.blocks if block.all("proxy_set_header")] == []


def test_edge_headers_are_accepted_only_from_edge_addresses() -> None:
    for name in ("$payintent_country", "$payintent_edge_secret"):
        [values] = _CONF.inner("map", "$payintent_edge", name)
        assert values.single("default") == [""]
        assert len(values.directives) == 2
    [edge] = _CONF.inner("geo", "$realip_remote_addr", "$payintent_edge")
    ranges = [directive[0] for directive in edge.directives if directive[1:] == ["1"]]
    assert edge.single("default") == ["0"]
    assert ranges == [address for [address] in _SERVER.all("set_real_ip_from")] == ["192.0.2.0/24"]


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
    assert _mask(path) == logged


def test_the_access_log_has_no_variable_with_the_unmasked_path() -> None:
    for server in _CONF.inner("server")[1:]:
        assert server.single("access_log")[1] == "payintent"
    [words] = _CONF.all("log_format")
    names = set(re.findall(r"\$(\w+)", "".join(words)))
    assert "payintent_path" in names
    leaking = {"request", "request_uri", "uri", "args", "query_string", "document_uri"}
    assert not names & (leaking | {"http_referer", "http_cookie", "http_authorization"})


def test_only_secure_tls_versions_are_enabled() -> None:
    assert _SERVER.single("ssl_protocols") == ["TLSv1.2", "TLSv1.3"]
    assert ["443", "ssl", "http2"] in _SERVER.all("listen")
    for plain in (item for item in _CONF.inner("server") if ["80"] in item.all("listen")):
        assert not any(block.all("proxy_pass") for block in plain.blocks)


def _mask(path: str) -> str:
    [rules] = _CONF.inner("map", "$uri", "$payintent_path")
    assert rules.single("default") == ["$uri"]
    for pattern, replacement in rules.directives[1:]:
        match = re.search(pattern.removeprefix("~").replace("(?<", "(?P<"), path)
        if match is not None:
            return re.sub(r"\$(\w+)", lambda name, groups=match: groups[name[1]] or "", replacement)
    return path
