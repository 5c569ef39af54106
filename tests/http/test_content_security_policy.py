"""The hosted page's security headers, framing, caching and size."""

import gzip
import re
from base64 import b64encode
from hashlib import sha256

import pytest

from payintent.checkout.static_files import static_url
from payintent.fraud.operations import AddFraudRule
from payintent.gateways.port import SessionCreated
from payintent.http.middleware import ScriptSources, content_security_policy
from payintent.merchants.operations import SetMerchantProfile
from payintent.runtime.settings import Settings
from tests.refunds.requests import create_in_status
from tests.support.arrange import bring_to, select
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

SHOP = "https://shop.test"
HTML_BYTES_MAX = 4_096
CSS_BYTES_MAX = 4_096
JS_BYTES_MAX = 9_800
STYLE = re.compile(b"<style>(.*?)</style>", re.DOTALL)
GZIP = {"Accept-Encoding": "gzip"}


def path_of(created: Answer, rest: str = "") -> str:
    return f"/c/{created.json['checkout_id']}{rest}"


async def policy(api: Api, path: str) -> dict[str, str]:
    """Fetch a page; return its policy by directive."""
    return parse_policy(await api.send("GET", path))


def parse_policy(answer: Answer) -> dict[str, str]:
    [header] = answer.headers.getall("Content-Security-Policy")
    return dict(part.partition(" ")[::2] for part in header.split("; "))


async def profile(api: Api, **changes: object) -> None:
    await api.world.perform(SetMerchantProfile(merchant_id=api.world.merchant_id, **changes))  # type: ignore[arg-type]


def source_of_style(page: Answer) -> str:
    """Hash the page's style as a browser does."""
    [style] = STYLE.findall(page.body)
    return f"'sha256-{b64encode(sha256(style).digest()).decode()}'"


async def test_a_page_allows_its_own_style_and_files_and_forms_to_its_gateway(api: Api) -> None:
    created = await api.create()
    page = await api.send("GET", path_of(created))
    assert parse_policy(page) == {
        "default-src": "'none'",
        "style-src": source_of_style(page),
        "img-src": "'self' data:",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
        "form-action": "'self' http://gateway.test",
        "script-src": "'self'",
        "connect-src": "'self'",
    }
    await bring_to(api, created, "CANCELLED")
    assert (await policy(api, path_of(created)))["form-action"] == "'self'"


async def test_a_page_allows_forms_only_to_the_gateway_of_the_next_action(
    api: Api,
) -> None:
    def elsewhere(_: object) -> SessionCreated:
        redirect = {"url": "https://bank.test/pay;x?y=1", "method": "POST", "fields": {"a": '"<'}}
        return SessionCreated(reference="r", next_action={"type": "redirect", "redirect": redirect})

    created = await api.create()
    api.world.gateway.answer_create = elsewhere
    await select(api, created)
    await api.world.rows("UPDATE payment_method SET enabled = false")
    page = await api.send("GET", path_of(created))
    assert parse_policy(page)["form-action"] == "'self' https://bank.test"
    assert 'action="https://bank.test/pay;x?y=1" target="_top"' in page.body.decode()
    assert 'name="a" value="&#34;&lt;"' in page.body.decode()


@pytest.mark.parametrize("status", ["PENDING", "PROCESSING", "PAID", "FAILED"])
async def test_pages_are_not_cached_indexed_or_leaked_to_other_sites(api: Api, status: str) -> None:
    created = await create_in_status(api, status)
    for rest in ("", "/receipt", "/qr.svg", "/return"):
        for options in ({}, {"headers": GZIP}):
            answer = await api.send("GET", path_of(created, rest), **options)
            assert answer.status in {200, 303}
            assert answer.headers.getall("Cache-Control") == ["no-store"]
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["X-Robots-Tag"] == "noindex, nofollow"
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert "Set-Cookie" not in answer.headers


class TestApiOnAnotherHost:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"api_base": "https://api.pay.test/v1"})

    async def test_every_page_can_connect_only_to_its_own_host_and_the_api(self, api: Api) -> None:
        created = await create_in_status(api, "PAID")
        for rest in ("", "/receipt"):
            sources = (await policy(api, path_of(created, rest)))["connect-src"]
            assert sources == "'self' https://api.pay.test"
        page = await api.send("GET", path_of(created))
        assert 'data-url="https://api.pay.test/v1/checkout/' in page.body.decode()


async def test_only_a_registered_origin_can_embed_the_page(api: Api) -> None:
    created = await api.create()
    query = "?embed_origin={}&nonce=n%22%3E1"
    path = path_of(created, query.format("https%3A%2F%2Fshop.test"))
    page = await api.send("GET", path)
    assert "<body data-embed" not in page.body.decode()
    assert parse_policy(page)["frame-ancestors"] == "'none'"
    await profile(api, allowed_origins=[SHOP, "https://m.shop.test"])
    page = await api.send("GET", path)
    assert f'data-embed="{SHOP}" data-nonce="n&#34;&gt;1"' in page.body.decode()
    await bring_to(api, created, "PAID")
    for rest in (path.removeprefix(path_of(created)), "", "/receipt"):
        ancestors = (await policy(api, path_of(created, rest)))["frame-ancestors"]
        assert ancestors == "https://m.shop.test https://shop.test"
    for origin in ("https%3A%2F%2Fshop.test.evil", "http%3A%2F%2Fshop.test", "*", "null", "%00"):
        page = await api.send("GET", path_of(created, query.format(origin)))
        assert "<body data-embed" not in page.body.decode(), origin
        assert "evil" not in page.headers["Content-Security-Policy"]


async def test_the_embedding_parameters_are_kept_in_forms_and_redirects(api: Api) -> None:
    await profile(api, allowed_origins=[SHOP])
    created = await api.create()
    query = "?lang=ja&embed_origin=https%3A%2F%2Fshop.test&nonce=n-1"
    page = (await api.send("GET", path_of(created, query))).body.decode()
    escaped_query = query.replace("&", "&amp;")
    assert f'action="{path_of(created, "/select")}{escaped_query}" target="_top"' in page
    assert f'action="{path_of(created, "/cancel")}{escaped_query}"' in page
    assert f'name="embed_origin" value="{SHOP}"' in page  # in the form that changes the country
    assert 'name="nonce" value="n-1"' in page
    answer = await api.send("POST", path_of(created, f"/cancel{query}"))
    assert answer.headers["Location"] == path_of(created, query)


def test_a_policy_contains_only_valid_origins() -> None:
    invalid = ("https://a.test;script-src", "https://a.test x", "*", "'unsafe-inline'", "data:", "")
    invalid += ("https://a.test,b", "https://ä.test", "https://a.test\r\nX: y", "ftp://a.test")
    header = content_security_policy(
        frame_ancestors=invalid,
        form_targets=(*invalid, "http://[::1]:8080"),
        scripts=ScriptSources(invalid, invalid, (*invalid, "https://*.a.test")),
    )
    assert header == (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; frame-ancestors 'none'; form-action 'self' http://[::1]:8080; "
        "script-src 'self'; connect-src 'self' https://*.a.test; frame-src "
    )


async def test_a_blocked_buyer_sees_a_return_link_but_not_the_reason(
    api: Api,
) -> None:
    await profile(
        api,
        allowed_origins=[SHOP],
        return_url=f"{SHOP}/basket",
        support_url=f"{SHOP}/help",
        locale="th",
    )
    created = await api.create()
    rule = AddFraudRule(kind="PAYER", value="buyer-1", code="SECRET_LIST", score=97)
    await api.world.perform(rule)
    way_back = f"{SHOP}/basket?payment_id={created.json['id']}&amp;status=PENDING"
    query = f"?embed_origin={SHOP}&nonce=n"
    for method, rest in (("GET", ""), ("POST", "/select"), ("POST", "/cancel"), ("GET", "/qr.svg")):
        page = await api.send(method, path_of(created, rest + query))
        text = page.body.decode()
        assert (page.status, page.headers["Content-Type"][:9]) == (200, "text/html"), rest
        assert 'data-result="BLOCKED"' in text
        assert 'lang="th"' in text
        assert f'href="{way_back}"' in text
        assert f'href="{SHOP}/help"' in text
        visible = STYLE.sub(b"", page.body).decode().replace(created.json["id"], "")
        visible = re.sub(r"/c/static/[\w-]+/", "", visible)
        for secret in ("SECRET_LIST", "97", "PAYER", "1,590", "fds", "buyer-1"):
            assert secret not in visible, secret
        assert page.headers.getall("Cache-Control") == ["no-store"]
        assert parse_policy(page)["frame-ancestors"] == SHOP
        assert f'data-embed="{SHOP}"' in text


async def test_static_files_are_cached_forever_by_their_content_hash(api: Api) -> None:
    for name, type_ in (
        ("checkout.css", "text/css"),
        ("checkout.js", "text/javascript"),
        ("offer.js", "text/javascript"),
        ("onchain.js", "text/javascript"),
        ("wallet.js", "text/javascript"),
        ("card.js", "text/javascript"),
        ("frame.js", "text/javascript"),
    ):
        answer = await api.send("GET", static_url(name))
        assert (answer.status, answer.headers["Content-Type"]) == (200, f"{type_}; charset=utf-8")
        caching = answer.headers.getall("Cache-Control")
        assert caching == ["public, max-age=31536000, immutable"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        headers = {"If-None-Match": "*", "If-Modified-Since": "Sun, 22 Nov 2037 00:00:00 GMT"}
        assert (await api.send("GET", static_url(name), headers=headers)).status == 200
        # During a rollout, a file must not be cached under the hash of a different release.
        old_release = await api.send("GET", f"/c/static/000000000000/{name}")
        assert (old_release.body, old_release.headers["Cache-Control"]) == (answer.body, "no-store")


async def test_other_files_are_not_served(api: Api) -> None:
    mark = static_url("x").rpartition("/")[0]
    names = (
        "checkout.html",
        "texts/en.json",
        "..%2fapi%2fpage.py",
        "%2e%2e",
        "x",
        ".",
        "card.js%00",
    )
    for name in names:
        assert (await api.send("GET", f"{mark}/{name}")).status == 404, name


@pytest.mark.parametrize(
    ("accepted", "is_compressed"),
    [
        ("gzip", True),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", True),
        ("GZIP", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("identity", False),
        ("x-gzipper", False),
        ("", False),
    ],
)
async def test_pages_and_files_are_compressed_if_the_client_accepts_gzip(
    api: Api, accepted: str, is_compressed: bool
) -> None:
    created = await api.create()
    api._client._auto_decompress = False
    for path in (path_of(created), static_url("checkout.js")):
        answer = await api.send("GET", path, headers={"Accept-Encoding": accepted})
        assert (answer.headers.get("Content-Encoding") == "gzip") == is_compressed
        assert "Accept-Encoding" in answer.headers["Vary"]
        plain = gzip.decompress(answer.body) if is_compressed else answer.body
        assert plain.startswith((b"<!doctype html>", b"const POLL_FIRST_MS"))
        assert int(answer.headers["Content-Length"]) == len(answer.body)


@pytest.mark.parametrize("status", ["PENDING", "PROCESSING", "PAID", "FAILED"])
async def test_a_page_is_small_and_needs_few_requests(api: Api, status: str) -> None:
    metadata = {"product": {"name": "Book", "detail": "d" * 500, "vendor": "v"}, "order_id": "A-1"}
    created = await create_in_status(api, status) if status != "PENDING" else None
    created = created or await api.create(metadata=metadata)
    api._client._auto_decompress = False
    page = gzip.decompress((await api.send("GET", path_of(created), headers=GZIP)).body)
    [style] = STYLE.findall(page)
    html = STYLE.sub(b"", page)
    assert len(gzip.compress(html, 5)) <= HTML_BYTES_MAX
    assert len(gzip.compress(style, 5)) <= CSS_BYTES_MAX
    urls = re.findall(r'(?:<script[^>]* src|<link [^>]* href|<img src)="([^"]*)"', html.decode())
    assert len([address for address in urls if not address.startswith("data:")]) + 1 <= 5


@pytest.mark.parametrize(
    "names",
    [
        ["checkout.js", "offer.js", "onchain.js", "wallet.js"],
        ["checkout.js", "frame.js", "card.js"],
    ],
)
async def test_the_scripts_of_a_page_are_small(api: Api, names: list[str]) -> None:
    api._client._auto_decompress = False
    answers = [await api.send("GET", static_url(name), headers=GZIP) for name in names]
    assert sum(len(answer.body) for answer in answers) <= JS_BYTES_MAX
