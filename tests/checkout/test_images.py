"""The service fetches shop and product images within limits, and scales them down."""

import asyncio
import struct
import subprocess
import sys
import zlib
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

import pytest
from aiohttp import web
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from payintent.checkout.pictures import cache, fetch
from payintent.checkout.pictures.cache import FairSemaphore, PictureCache, PictureSource
from payintent.checkout.pictures.fetch import (
    PIXELS_MAX,
    SCANS_MAX,
    SIDE_PX,
    PictureFetcher,
    PictureUnavailableError,
    encode_picture,
)
from payintent.http.egress import EgressRules
from payintent.merchants.operations import SetMerchantProfile
from tests.checkout.images import decode_image, make_picture
from tests.support.http_server import clean_up
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S, wait_until
from tests.support.world import Answer, Api

pytestmark = pytest.mark.full

_SANDBOX = EgressRules(sandbox=True)
_SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@dataclass
class Shop:
    """A shop's server: its responses by path, and the requests that it received."""

    host: str
    port: int
    handlers: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = field(
        default_factory=dict
    )
    requested_paths: list[str] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"http://{self.host}:{self.port}{path}"

    def serve(self, path: str, content: bytes, kind: str = "image/png", **headers: str) -> str:
        """Serve these bytes at a path; return the full URL."""

        async def respond(_: web.Request) -> web.Response:
            return web.Response(body=content, content_type=kind, headers=headers)

        self.handlers[path] = respond
        return self.url(path)

    def redirect(self, path: str, location: str) -> str:
        """Redirect a path to another URL."""

        async def respond(_: web.Request) -> web.Response:
            return web.Response(status=302, headers={"Location": location})

        self.handlers[path] = respond
        return self.url(path)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requested_paths.append(request.path)
        return await self.handlers[request.path](request)


async def _start_shop(host: str) -> tuple[Shop, web.AppRunner]:
    shop = Shop(host, free_port())
    app = web.Application()
    app.router.add_get("/{path:.*}", shop.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, host, shop.port).start()
    return shop, runner


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop, runner = await _start_shop("127.0.0.1")
    yield shop
    await clean_up(runner)


@pytest.fixture
async def allowed_shop() -> AsyncIterator[Shop]:
    """A shop at an address that the test's rules allow."""
    shop, runner = await _start_shop("127.0.0.2")
    yield shop
    await clean_up(runner)


@pytest.fixture
async def fetcher() -> AsyncIterator[PictureFetcher]:
    fetcher = PictureFetcher(_SANDBOX)
    yield fetcher
    await fetcher.close()


async def _fetch_error(fetcher: PictureFetcher, url: str) -> str:
    with pytest.raises(PictureUnavailableError) as refused:
        await fetcher.fetch(url)
    return str(refused.value)


# Fetching


async def test_a_picture_is_fetched_through_a_redirect(shop: Shop, fetcher: PictureFetcher) -> None:
    content = make_picture()
    shop.serve("/book.png", content)
    assert await fetcher.fetch(shop.redirect("/old", "/book.png")) == content
    assert shop.requested_paths == ["/old", "/book.png"]


async def test_the_number_of_redirects_is_limited(shop: Shop, fetcher: PictureFetcher) -> None:
    assert await _fetch_error(fetcher, shop.redirect("/round", "/round")) == "too many redirects"
    assert len(shop.requested_paths) == fetch.REDIRECTS_MAX + 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/x",
        "http://localhost:{port}/x",
        "http://[::ffff:127.0.0.1]:{port}/x",
        "http://2130706433:{port}/x",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1:8080/x",
        "file:///etc/passwd",
        "data:image/png;base64,AAAA",
        "http://user:word@127.0.0.1:{port}/x",
        "//127.0.0.1:{port}/x",
        "https://bücher.example/x",
    ],
)
async def test_outside_the_sandbox_only_public_addresses_are_requested(
    shop: Shop, url: str
) -> None:
    shop.serve("/x", make_picture())
    fetcher = PictureFetcher(EgressRules(ports=frozenset({80, 443, 8080, shop.port})))
    await _fetch_error(fetcher, url.format(port=shop.port))
    await fetcher.close()
    assert shop.requested_paths == []


async def test_a_redirect_to_a_loopback_address_is_not_followed(
    shop: Shop, allowed_shop: Shop
) -> None:
    shop.serve("/x", make_picture())
    rules = EgressRules(
        networks=(ip_network("127.0.0.2/32"),), ports=frozenset({shop.port, allowed_shop.port})
    )
    fetcher = PictureFetcher(rules)
    fetcher._needs_https = False
    reason = await _fetch_error(fetcher, allowed_shop.redirect("/old", shop.url("/x")))
    await fetcher.close()
    assert "loopback" in reason
    assert (allowed_shop.requested_paths, shop.requested_paths) == (["/old"], [])


async def test_outside_the_sandbox_only_https_urls_are_requested(allowed_shop: Shop) -> None:
    rules = EgressRules(
        networks=(ip_network("127.0.0.2/32"),), ports=frozenset({allowed_shop.port})
    )
    fetcher = PictureFetcher(rules)
    reason = await _fetch_error(fetcher, allowed_shop.serve("/x", make_picture()))
    await fetcher.close()
    assert (reason, allowed_shop.requested_paths) == ("the URL must use https", [])


async def test_a_body_is_not_read_if_its_content_length_is_too_large(
    shop: Shop, fetcher: PictureFetcher
) -> None:
    async def oversized(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": str(50 * 1024 * 1024)})
        await answer.prepare(request)
        return answer  # without sending a body

    shop.handlers["/large"] = oversized
    assert "more than" in await _fetch_error(fetcher, shop.url("/large"))


async def test_an_endless_body_is_cut_off(shop: Shop, fetcher: PictureFetcher) -> None:
    sent_bytes = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent_bytes
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(bytes(256 * 1024))
            sent_bytes += 256 * 1024

    shop.handlers["/endless"] = endless
    assert "more than" in await _fetch_error(fetcher, shop.url("/endless"))
    assert sent_bytes < 50 * 1024 * 1024


async def test_a_slow_body_times_out(shop: Shop) -> None:
    gone = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(make_picture()[:20])
        await gone.wait()
        return answer

    shop.handlers["/slow"] = slow
    fetcher = PictureFetcher(_SANDBOX, timeout_s=0.2)
    assert await _fetch_error(fetcher, shop.url("/slow")) == "the response timed out"
    gone.set()
    await fetcher.close()


async def test_an_error_response_is_not_a_picture(shop: Shop, fetcher: PictureFetcher) -> None:
    async def unavailable(_: web.Request) -> web.Response:
        return web.Response(status=503, body=make_picture())

    shop.handlers["/away"] = unavailable
    assert await _fetch_error(fetcher, shop.url("/away")) == "HTTP 503"
    assert (
        await _fetch_error(fetcher, f"http://127.0.0.1:{free_port()}/x") == "the connection failed"
    )


# Encoding


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_picture_is_scaled_down_in_proportion(kind: str) -> None:
    encoded = decode_image(encode_picture(make_picture(800, 400, kind)))
    assert (encoded.format, encoded.size) == ("WEBP", (SIDE_PX, SIDE_PX // 2))


def test_transparency_is_preserved() -> None:
    encoded = decode_image(encode_picture(make_picture(40, 40, mode="RGBA", colour=(255, 0, 0, 0))))
    assert encoded.mode == "RGBA"
    assert encoded.getpixel((20, 20))[3] == 0  # type: ignore[index]


def test_all_metadata_is_removed() -> None:
    secret = b"taken at 52.5200 N 13.4050 E"
    text = PngInfo()
    text.add_text("Comment", secret.decode())
    exif = Image.Exif()
    exif[0x010E] = secret.decode()
    for content in (
        make_picture(pnginfo=text, exif=exif, icc_profile=secret),
        make_picture(kind="JPEG", exif=exif, comment=secret, icc_profile=secret),
        make_picture(kind="WEBP", exif=exif, xmp=secret, icc_profile=secret),
    ):
        assert secret in content or b"iCCP" in content
        encoded = encode_picture(content)
        assert not any(mark in encoded for mark in (secret, b"EXIF", b"ICCP", b"XMP ", b"ANIM"))
        assert not decode_image(encoded).getexif()


def test_a_picture_is_rotated_as_its_exif_orientation_requires() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode_image(encode_picture(make_picture(400, 200, "JPEG", exif=exif))).size == (
        128,
        256,
    )


def test_an_animation_is_reduced_to_its_first_frame() -> None:
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    animation = make_picture(kind="WEBP", source=frames[0], save_all=True, append_images=frames[1:])
    encoded = decode_image(encode_picture(animation))
    assert getattr(encoded, "n_frames", 1) == 1
    red, _, blue = encoded.convert("RGB").getpixel((16, 16))  # type: ignore[misc]
    assert red > blue


# Do not use `ru_maxrss`, because a process inherits it from its parent.
_PEAK_MEMORY_SCRIPT = """
import re, sys
from pathlib import Path
from payintent.checkout.pictures.fetch import encode_picture
def highest():
    return int(re.search(r"VmHWM:\\s+([0-9]+) kB", Path("/proc/self/status").read_text())[1]) * 1024
content, before = Path(sys.argv[1]).read_bytes(), highest()
encode_picture(content)
print(highest() - before)
"""


def _png_header(width: int, height: int) -> bytes:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    crc = struct.pack(">I", zlib.crc32(header))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + crc


def test_a_decompression_bomb_is_rejected_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*_: object, **__: object) -> None:
        pytest.fail("the image was decoded")

    monkeypatch.setattr(Image.Image, "convert", decoded)
    monkeypatch.setattr(Image.Image, "thumbnail", decoded)
    for width, height in ((40_000, 40_000), (PIXELS_MAX["PNG"] + 1, 1), (2**31 - 1, 2**31 - 1)):
        with pytest.raises(PictureUnavailableError, match=r"pixels|valid"):
            encode_picture(_png_header(width, height) + bytes(100))


def test_a_jpeg_with_too_many_scans_is_rejected_before_decoding() -> None:
    plain = make_picture(64, 64, "JPEG", progressive=True)
    at = plain.rfind(b"\xff\xda")
    scans = SCANS_MAX - plain.count(b"\xff\xda")
    longest = plain[:-2] + plain[at:-2] * scans + b"\xff\xd9"
    assert decode_image(encode_picture(longest)).size == (64, 64)
    with pytest.raises(PictureUnavailableError, match="scans"):
        encode_picture(plain[:-2] + plain[at:-2] * (scans + 1) + b"\xff\xd9")


@pytest.mark.parametrize(("kind", "bytes_each"), [("PNG", 10), ("WEBP", 19)])
def test_encoding_a_large_picture_needs_little_memory(
    tmp_path: Path, kind: str, bytes_each: int
) -> None:
    """Measured in a separate process, because the peak memory of a process never decreases."""
    side = 2_000
    large = make_picture(side, side, kind, mode="RGBA", colour=(255, 0, 0, 128), lossless=True)
    (tmp_path / "large").write_bytes(large)
    result = subprocess.run(
        [sys.executable, "-c", _PEAK_MEMORY_SCRIPT, str(tmp_path / "large")],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert int(result.stdout) < side * side * bytes_each


@pytest.mark.parametrize(
    "content",
    [
        _SVG,
        b"",
        b"<!doctype html><script>alert(1)</script>",
        b"GIF89a\x01\x00\x01\x00\x00\x00\x00;",
        b"%PDF-1.7",
        b"\x89PNG\r\n\x1a\n",
        _png_header(10, 10),
        make_picture()[: len(make_picture()) // 2],
        make_picture(kind="TIFF"),
        make_picture(kind="BMP"),
        make_picture(kind="GIF"),
        make_picture(kind="ICO"),
    ],
    ids=str,
)
def test_incomplete_pictures_and_unsupported_formats_are_rejected(content: bytes) -> None:
    with pytest.raises(PictureUnavailableError, match="not a valid PNG"):
        encode_picture(content)


# Caching and display


async def _page(api: Api, image: object) -> Answer:
    created = await api.create(metadata={"product": {"name": "Book", "image": image}})
    return await api.send("GET", f"/c/{created.json['checkout_id']}")


def _sources(page: Answer) -> list[str]:
    text = page.body.decode()
    return [part.partition('"')[0] for part in text.split('<img src="')[1:] if "/pictures/" in part]


async def test_a_product_picture_is_served_from_the_checkout_origin(api: Api, shop: Shop) -> None:
    page = await _page(api, shop.serve("/book.png", make_picture(600, 300)))
    assert shop.requested_paths == []  # neither the create request nor the page waits for the image
    assert str(shop.port) not in page.body.decode().replace("data-", "")
    assert "img-src 'self' data:;" in page.headers["Content-Security-Policy"]
    [source] = _sources(page)
    for _ in range(2):
        answer = await api.send("GET", source)
        assert (answer.status, answer.headers["Content-Type"]) == (200, "image/webp")
        assert answer.headers["Cache-Control"] == "public, max-age=3600"
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert decode_image(answer.body).size == (SIDE_PX, SIDE_PX // 2)
    assert shop.requested_paths == ["/book.png"]


async def test_a_logo_is_served_like_a_product_picture(api: Api, shop: Shop) -> None:
    logo = shop.serve("/logo.png", make_picture())
    await api.world.perform(SetMerchantProfile(merchant_id=api.world.merchant_id, logo_url=logo))
    created = await api.create()
    page = (await api.send("GET", f"/c/{created.json['checkout_id']}")).body.decode()
    source = page.partition('class="logo" src="')[2].partition('"')[0]
    assert (await api.send("GET", source)).status == 200
    assert shop.requested_paths == ["/logo.png"]


async def test_an_unavailable_picture_is_hidden_and_not_fetched_again_soon(
    api: Api, shop: Shop
) -> None:
    url = shop.serve("/book.svg", _SVG, "image/svg+xml")
    [source] = _sources(await _page(api, url))
    for _ in range(3):
        answer = await api.send("GET", source)
        assert answer.status == 404
        assert answer.headers["Cache-Control"] == "no-store"
    assert shop.requested_paths == ["/book.svg"]
    assert _sources(page := await _page(api, url)) == []
    assert "Book" in page.body.decode()


@pytest.mark.parametrize(
    "image",
    [
        "data:image/svg+xml,<svg/>",
        "javascript:alert(1)",
        "//shop.test/book.jpg",
        "https://shop.test\\@evil.test/x",
        "https://user@shop.test/x",
        "https://shop.test/" + "x" * 2_100,
        "https://shop.test/\u00e4",
        "\ud800",
        7,
        None,
        {"url": "https://shop.test/x"},
    ],
    ids=str,
)
async def test_an_invalid_picture_url_is_not_shown(api: Api, image: object) -> None:
    page = await _page(api, image)
    assert (page.status, _sources(page)) == (200, [])


async def test_only_pictures_with_signed_names_are_fetched(api: Api, shop: Shop) -> None:
    url = shop.serve("/secret.png", make_picture())
    pictures = api.world.service.pictures
    signed_name = pictures.make_name(url, 7)
    assert pictures.parse_name(signed_name) is not None
    encoded = urlsafe_b64encode(url.encode()).decode().rstrip("=")
    other_name = pictures.make_name(shop.url("/other.png"), 7)
    for name in (
        encoded,
        "A" * 28 + encoded,
        other_name[:28] + encoded,
        signed_name[:20] + "AAAAAAAA" + encoded,
        signed_name[:-2],
        signed_name + "AA",
        "x",
        "%",
    ):
        assert (await api.send("GET", f"/c/static/pictures/{name}.webp")).status == 404
    assert shop.requested_paths == []


async def test_concurrent_requests_for_a_picture_share_a_single_fetch(api: Api, shop: Shop) -> None:
    pictures = api.world.service.pictures
    url = shop.serve("/book.png", make_picture())
    images = await asyncio.gather(*(pictures.get(PictureSource(url)) for _ in range(20)))
    assert len(set(images)) == 1
    assert shop.requested_paths == ["/book.png"]


async def test_the_picture_cache_is_bounded(
    api: Api, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(encode_picture(make_picture()))
    monkeypatch.setattr(cache, "CACHED_BYTES_MAX", 3 * size)
    pictures = api.world.service.pictures
    urls = [shop.serve(f"/{number}.png", make_picture()) for number in range(5)]
    for url in urls:
        assert await pictures.get(PictureSource(url)) is not None
    assert pictures.cached_bytes <= 3 * size
    await pictures.get(PictureSource(urls[-1]))
    assert len(shop.requested_paths) == 5
    await pictures.get(PictureSource(urls[0]))
    assert len(shop.requested_paths) == 6


async def test_pictures_are_not_fetched_if_the_queue_is_full(
    api: Api, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "WAITING_MAX", 0)
    url = shop.serve("/book.png", make_picture())
    assert await api.world.service.pictures.get(PictureSource(url)) is None
    assert shop.requested_paths == []
    assert not api.world.service.pictures.has_failed(url)


async def test_a_merchants_hanging_picture_requests_do_not_block_other_merchants(
    api: Api, shop: Shop
) -> None:
    never = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    pictures = PictureCache(api.world.service.encryption, _SANDBOX)
    sources = []
    for number in range(cache.WAITING_PER_MERCHANT_MAX):
        shop.handlers[f"/hang/{number}"] = hang
        sources.append(PictureSource(shop.url(f"/hang/{number}"), "theirs"))
    hanging = [asyncio.create_task(pictures.get(source)) for source in sources]
    await wait_until(
        lambda: len(shop.requested_paths) == cache.FETCHES_PER_MERCHANT_MAX,
        "the pictures to be requested",
    )
    beyond = PictureSource(shop.serve("/one-more.png", make_picture()), "theirs")
    assert await pictures.get(beyond) is None
    ours = PictureSource(shop.serve("/book.png", make_picture()), "ours")
    assert await pictures.get(ours) is not None
    assert len(shop.requested_paths) == cache.FETCHES_PER_MERCHANT_MAX + 1
    never.set()
    await asyncio.gather(*hanging)
    await pictures.close()


async def test_a_picture_that_timed_out_in_the_queue_is_fetched_on_a_later_request(
    api: Api, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "QUEUE_S", 0.01)
    never = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response(status=404)

    pictures = PictureCache(api.world.service.encryption, _SANDBOX)
    urls = [shop.url(f"/hang/{number}") for number in range(cache.FETCHES_PER_MERCHANT_MAX)]
    shop.handlers |= dict.fromkeys((f"/hang/{number}" for number in range(len(urls))), hang)
    hanging = [asyncio.create_task(pictures.get(PictureSource(url))) for url in urls]
    await wait_until(lambda: len(shop.requested_paths) == len(urls), "the pictures to be requested")
    late = PictureSource(shop.serve("/book.png", make_picture()))
    assert await pictures.get(late) is None
    assert not pictures.has_failed(late.url)
    never.set()
    await asyncio.gather(*hanging)
    assert await pictures.get(late) is not None
    await pictures.close()


async def test_a_picture_request_has_a_time_limit(
    api: Api, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fetch.TIMEOUT_S + cache.QUEUE_S <= cache.REQUEST_S == 5.0
    monkeypatch.setattr(cache, "REQUEST_S", 0.01)
    never = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    shop.handlers["/hang"] = hang
    pictures = PictureCache(api.world.service.encryption, _SANDBOX)
    assert await pictures.get(PictureSource(shop.url("/hang"))) is None
    never.set()
    await pictures.close()


async def test_the_fair_semaphore_limits_each_party_and_keeps_their_order() -> None:
    turns, order, end = FairSemaphore(2, 1), list[str](), asyncio.Event()

    async def take_turn(party: str) -> None:
        async with turns.hold(party, PATIENCE_S):
            order.append(party)
            if len(order) <= 2:
                await end.wait()

    all_turns = [asyncio.create_task(take_turn(party)) for party in ("a", "a", "a", "b", "c", "c")]
    await wait_until(lambda: len(order) == 2, "two parties to take a turn")
    assert order == ["a", "b"]
    end.set()
    await asyncio.gather(*all_turns)
    assert sorted(order) == ["a", "a", "a", "b", "c", "c"]
    assert order.index("c") <= 3  # before the last turn of the first party


async def test_closing_the_cache_cancels_its_fetches(api: Api, shop: Shop) -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        begun.set()
        await never.wait()
        return web.Response()

    shop.handlers["/hang"] = hang
    pictures = PictureCache(api.world.service.encryption, _SANDBOX)
    waiting = asyncio.create_task(pictures.get(PictureSource(shop.url("/hang"))))
    await begun.wait()
    await pictures.close()
    never.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
