"""Equivalent origins have the same canonical form, and invalid URLs have none."""

import pytest

from payintent.core.addresses import parse_web_origin
from tests.support.sample_values import NO_WAY_BACK


@pytest.mark.parametrize("url", NO_WAY_BACK)
def test_urls_that_lead_elsewhere_do_not_have_the_shops_origin(url: str) -> None:
    assert parse_web_origin(url) not in {"https://shop.example.com", ""}


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://shop.example.com", "https://shop.example.com"),
        ("HTTPS://Shop.Example.COM/Path?Q#f", "https://shop.example.com"),
        ("https://shop.example.com:443/", "https://shop.example.com"),
        ("http://shop.example.com:80?x", "http://shop.example.com"),
        ("http://shop.example.com:443#x", "http://shop.example.com:443"),
        ("https://shop.example.com:08443", "https://shop.example.com:8443"),
        ("https://my_shop:8443/a:b@c", "https://my_shop:8443"),
        ("http://[::1]:8080/x", "http://[::1]:8080"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
    ],
)
def test_equivalent_origins_have_the_same_form(url: str, origin: str) -> None:
    assert parse_web_origin(url) == origin
    assert parse_web_origin(origin) == origin


@pytest.mark.parametrize(
    "url",
    [
        "", "https://", "https:///x", "https://:443", "https://a:", "https://a:0", "https://a:65536",
        "https://a:1e3", "https://a:٣", "https://a..b", "https://" + 64 * "a", "https://[::1",
        "https://[::1]x", "https://[0:0:0:0:0:0:0:1]", "https://*.example.com", "https://a%2eb",
        "https://bücher.example", "//a", "a", "ftp://a", "https:/a", "https:a",
        "https://a/\\b", "https://a/b c", "https://a/\r\nb", "https://a/\x00", "https://a/?\u202e",
    ],
)  # fmt: skip
def test_an_invalid_url_has_no_origin(url: str) -> None:
    assert parse_web_origin(url) is None
