"""Cookies are read by name, within a limit, and never unescaped."""

import pytest
from starlette.requests import Request

from payintent.http.pages.forms import read_cookie


def _request(*headers: str) -> Request:
    encoded = [(b"cookie", header.encode()) for header in headers]
    return Request({"type": "http", "headers": encoded})


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        (["name=value"], "value"),
        (["other=1; name=value; more=2"], "value"),
        (["other=1;name = value "], "value"),
        (["other=1", "name=value"], "value"),  # HTTP/2 may split the header
        (["name=first; name=last"], "last"),
        (['name="value"'], "value"),
        (["name=a=b"], "a=b"),
        (["name="], ""),
        (['name="'], '"'),
        ([], None),
        (["name"], None),
        (["names=1; aname=2; name-=3; Name=4"], None),
        ([f"name={'v' * 4_096}"], "v" * 4_096),
        ([f"name={'v' * 4_097}"], None),
        ([r'name="a\1b"'], None),
        ([r"name=a\b"], None),
    ],
)
def test_a_cookie_is_read_by_name_within_the_limit(headers: list[str], value: str | None) -> None:
    assert read_cookie(_request(*headers), "name") == value
