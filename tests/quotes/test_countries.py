"""The public list of countries and their flags."""

import re
from dataclasses import replace
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest

from payintent.core.countries import COUNTRIES, COUNTRY_NAMES
from tests.http.wire import Wire
from tests.support.arrange import refusal
from tests.support.world import Answer, Api, World

_SVG = "{http://www.w3.org/2000/svg}"
_SHAPES = {"svg", "g", "mask", "path", "circle", "rect"}
_ATTRIBUTES = {
    *("viewBox", "width", "height", "id", "mask", "fill", "stroke", "stroke-width"),
    *("d", "cx", "cy", "r", "x", "y", "rx", "ry"),
}
_FLAG_BYTES_MAX = 4 * 1024


@pytest.fixture
def world(world: World, request: pytest.FixtureRequest) -> World:
    """The world, with a different API URL if the test has a parameter."""
    if hasattr(request, "param"):
        settings = world.service.settings.model_copy(update={"api_base": request.param})
        world.service = replace(world.service, settings=settings)
    return world


async def _countries(api: Api, **headers: str) -> Answer:
    http_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.send("GET", "/v1/countries", headers=http_headers)


async def test_all_53_countries_are_listed_by_name(api: Api) -> None:
    answer = await _countries(api)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert list(answer.json) == ["countries"]
    countries = answer.json["countries"]
    assert len(countries) == 53
    assert [entry["name"] for entry in countries] == sorted(COUNTRY_NAMES.values())
    assert {entry["country_code"]: entry["name"] for entry in countries} == COUNTRY_NAMES
    assert {entry["country_code"] for entry in countries} == set(COUNTRIES)
    assert COUNTRY_NAMES["GL"] == "Global"
    for item in countries:
        assert list(item) == ["country_code", "name", "metadata"]
        assert isinstance(item["metadata"], dict)


async def test_browsers_of_any_origin_can_read_the_list_without_a_key(api: Api) -> None:
    for key in ({}, {"Authorization": "Bearer sk_live_nobody"}):
        answer = await _countries(api, Origin="https://shop.example", **key)
        assert answer.status == 200
        assert answer.headers.getall("Access-Control-Allow-Origin") == ["*"]
        assert "Access-Control-Allow-Credentials" not in answer.headers
    preflight = await api.send(
        "OPTIONS", "/v1/countries", headers={"Origin": "https://shop.example"}
    )
    assert (preflight.status, preflight.headers["Access-Control-Allow-Origin"]) == (204, "*")
    assert refusal(await api.send("POST", "/v1/countries")) == (405, "BAD_REQUEST")


async def test_an_unchanged_list_returns_304(api: Api) -> None:
    first = await _countries(api)
    assert first.headers.getall("Cache-Control") == ["public, max-age=3600"]
    etag = first.headers["ETag"]
    assert re.fullmatch('"[0-9a-f]{64}"', etag)
    for etags in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        response = await _countries(api, If_None_Match=etags)
        assert (response.status, response.body, response.headers["ETag"]) == (304, b"", etag), etags
        assert response.headers["Access-Control-Allow-Origin"] == "*"
    for unknown in ('"other"', "", ",", etag.strip('"')):
        response = await _countries(api, If_None_Match=unknown)
        assert (response.status, response.body) == (200, first.body), unknown


@pytest.mark.parametrize("world", ["https://pay.example.com:8443/v1"], indirect=True)
async def test_every_flag_is_a_harmless_svg_at_the_api_origin(api: Api) -> None:
    for country in (await _countries(api)).json["countries"]:
        code = country["country_code"].lower()
        url = country["metadata"]["image_url"]
        assert url == f"https://pay.example.com:8443/c/static/flags/{code}.svg"
        image = await api.send("GET", urlsplit(url).path)
        assert (image.status, image.headers["Content-Type"]) == (200, "image/svg+xml"), url
        assert image.headers.getall("Cache-Control") == ["public, max-age=3600"]
        assert image.headers["X-Content-Type-Options"] == "nosniff"
        assert image.headers["Content-Security-Policy"] == "default-src 'none'"
        _check_harmless(image.body, code)


def _check_harmless(image: bytes, code: str) -> None:
    """Check that an image contains only shapes, without scripts, styles or external content."""
    assert len(image) <= _FLAG_BYTES_MAX, code
    assert image.startswith(b"<svg "), code  # without a document type, and thus without entities
    root = ET.fromstring(image)  # noqa: S314 - without a document type it is plain
    assert root.tag == f"{_SVG}svg", code
    assert re.fullmatch(r"0 0 \d+ \d+", root.attrib["viewBox"]), code
    for element in root.iter():
        assert element.tag.removeprefix(_SVG) in _SHAPES, (code, element.tag)
        assert set(element.attrib) <= _ATTRIBUTES, (code, element.attrib)
        for value in element.attrib.values():
            assert "(" not in value or re.fullmatch(r"url\(#\w+\)", value), (code, value)


@pytest.mark.parametrize("world", ["", "pay.example.com/v1"], indirect=True)
async def test_without_an_api_url_the_metadata_is_an_empty_object(api: Api) -> None:
    countries = (await _countries(api)).json["countries"]
    assert [item["metadata"] for item in countries] == [{}] * 53


async def test_only_flags_are_served_under_the_flags_path(api: Api) -> None:
    names = (
        *("", "kr.svg", "TH.svg", "th", "th.png", "th.svg/", "th.svg%00", "LICENSE", "."),
        *("../checkout.html", "..%2fcheckout.html", "%2e%2e/checkout.html", "../flags/th.svg"),
        *("../../../config.py", "..%2f..%2fconfig.py", "..%5cth.svg", "/etc/passwd"),
        *("%2fetc%2fpasswd", "./th.svg", "/th.svg", "....//th.svg", "%252e%252e/checkout.css"),
    )
    async with Wire(api.base) as wire:
        for name in names:
            await wire.send(
                f"GET /c/static/flags/{name} HTTP/1.1\r\nHost: pay.test\r\n\r\n".encode()
            )
            answer = await wire.answer()
            assert answer is not None, name
            assert (answer.status, answer.json["code"]) == (404, "NOT_FOUND"), name
