"""Static files of the checkout: scripts, styles, flags, the browser SDK and merchants' images."""

import base64
import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256, sha384
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from payintent.checkout.accent import DARK, LIGHT, Shades, accent_shades
from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.checkout.languages import load_language
from payintent.core.addresses import parse_web_origin
from payintent.core.countries import COUNTRIES
from payintent.core.errors import ErrorCode, NotFoundError
from payintent.core.languages import LOCALES
from payintent.http.errors import error_response
from payintent.http.pages import static_files as files
from payintent.http.responses import etag_response

_FILES = (
    *("checkout.css", "checkout.js", "card.js", "offer.js", "onchain.js", "wallet.js"),
    *("deposit.js", "derive.js", "frame.js"),
)
#: Removes the card step's notice in browsers that know the syntax of our scripts.
SCRIPT_CHECK = files.make_inline_block(
    "new (class { constructor() { this.#run(); } #run() {"
    ' document.querySelector("[data-needs-script]")?.remove(); } })();'
)
_STYLE = "checkout.css"
_OFFER = "offer.js"
_FLAGS = frozenset(f"{country.lower()}.svg" for country in COUNTRIES)
_CACHE_HOUR = {"Cache-Control": "public, max-age=3600"}
#: Placeholder for translations in a script; in the source it is an empty object.
_TEXTS_PLACEHOLDER = re.compile(r"\{/\* texts \*/\}")
_TEXT_KEY = re.compile(r'"([a-z]+_[a-z_]+|offline|copied)"')
#: Placeholder for the page's script in the wallet script.
_DERIVE_PLACEHOLDER = "({/* derive.js */})"
_STYLES_MAX = 500  # cached style sheets of about 10 KiB
_SDK_HASH_CHARS = 12
_SDK_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Vary": "Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
}
_IMMUTABLE = "public, max-age=31536000, immutable"
_CACHE_MINUTES = "public, max-age=300"
_SCRIPT = "text/javascript"
_URL_CHARS_MAX = 2_048  # a URL of this length may have been truncated


def static_url(name: str, locale: str = LOCALES[0]) -> str:
    return _load_files(locale).url(name)


@lru_cache(maxsize=_STYLES_MAX)
def page_style(colour: str | None = None) -> files.InlineBlock:
    text = _load_files(LOCALES[0]).text(_STYLE)
    if colour is not None:
        shades = (_css_properties(accent_shades(colour, theme)) for theme in (LIGHT, DARK))
        text += files.minify_style("{}@media (prefers-color-scheme: dark) {{ {} }}".format(*shades))
    return files.make_inline_block(text)


@cache
def offer_script(locale: str) -> files.InlineBlock:
    return files.make_inline_block(_load_files(locale).text(_OFFER))


async def get_static_file(request: Request) -> Response:
    """`GET /c/static/{mark}/{name}`: serve a file's current version, even for an old `mark`."""
    locale = request.path_params["mark"].partition("-")[2]
    files = _load_files(locale if locale in LOCALES else LOCALES[0])
    return await files.get(request)


async def get_flag(request: Request) -> Response:
    name: str = request.path_params["name"]
    if name not in _FLAGS:
        raise NotFoundError("no such file")
    content = (resources.files("payintent") / "checkout" / "static" / "flags" / name).read_bytes()
    return Response(content, 200, files.HEADERS | _CACHE_HOUR, "image/svg+xml")


@cache
def _load_files(locale: str) -> files.StaticFiles:
    translations = load_language(locale).translations

    def insert_texts(source: str) -> str:
        texts = {
            key: translations[key]
            for key in dict.fromkeys(_TEXT_KEY.findall(source))
            if key in translations
        }
        literal = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
        return _TEXTS_PLACEHOLDER.sub(lambda _: literal, source)

    return files.StaticFiles(
        "checkout/static", "/c/static", _FILES, prepare=insert_texts, suffix=f"-{locale}"
    )


def _css_properties(shades: Shades) -> str:
    return f":root {{ --act: {shades.button}; --on: {shades.text}; --link: {shades.link} }}"


@dataclass(frozen=True, slots=True)
class _SdkFile:
    media_type: str
    plain: bytes
    gzipped: bytes
    cache_control: str
    pinned_url: str  # contains the content hash; empty if there is no pinned version


async def get_sdk_file(request: Request) -> Response:
    file = _sdk_files().get(request.path_params["name"])
    if file is None:
        raise NotFoundError("no such file")
    headers = {**_SDK_HEADERS, "Cache-Control": file.cache_control}
    if file.pinned_url:
        headers["Content-Location"] = file.pinned_url
    body = file.plain
    if files.accepts_gzip(request):
        body, headers["Content-Encoding"] = file.gzipped, "gzip"
    return etag_response(request, body, f'"{sha256(body).hexdigest()}"', headers, file.media_type)


@cache
def _sdk_files() -> Mapping[str, _SdkFile]:
    wallets = files.minify_script(build_wallet_script())
    core = files.minify_script(_insert_hash(_read_source("v1.js"), wallets))
    return {
        **_sdk_script("v1.js", core),
        **_sdk_script("v1.onchain.js", wallets),
        "loader.js": _sdk_file(_SCRIPT, files.minify_script(_read_source("loader.js"))),
        "v1.d.ts": _sdk_file("text/plain", _read_source("v1.d.ts")),
    }


def build_wallet_script() -> str:
    """Return the wallet script, including the page's script that derives deposit addresses."""
    static = resources.files("payintent") / "checkout" / "static"
    derive = (static / "derive.js").read_text().replace("export function", "function")
    block = f"(() => {{\n{derive}\nreturn {{ deriveAddress }};\n}})()"
    return _read_source("v1.onchain.js").replace(_DERIVE_PLACEHOLDER, block)


def _insert_hash(core: str, wallets: str) -> str:
    """Insert the wallet script's hash, so that pinning the core script pins both."""
    digest = base64.b64encode(sha384(wallets.encode()).digest()).decode()
    core = core.replace(
        'PART = "v1.onchain.js"', f'PART = "{_pinned_name("v1.onchain.js", wallets)}"'
    )
    return core.replace('INTEGRITY = ""', f'INTEGRITY = "sha384-{digest}"')


def _sdk_script(name: str, text: str) -> dict[str, _SdkFile]:
    pinned_name = _pinned_name(name, text)
    return {
        name: _sdk_file(_SCRIPT, text, pinned_url=f"/sdk/{pinned_name}"),
        pinned_name: _sdk_file(_SCRIPT, text, cache_control=_IMMUTABLE),
    }


def _pinned_name(name: str, text: str) -> str:
    return f"{name.removesuffix('.js')}.{sha256(text.encode()).hexdigest()[:_SDK_HASH_CHARS]}.js"


def _sdk_file(
    media_type: str, text: str, *, cache_control: str = _CACHE_MINUTES, pinned_url: str = ""
) -> _SdkFile:
    plain = text.encode()
    return _SdkFile(media_type, plain, gzip.compress(plain, mtime=0), cache_control, pinned_url)


def _read_source(name: str) -> str:
    return (resources.files("payintent") / "checkout" / "sdk" / name).read_text()


def picture_path(context: CheckoutContext, url: str | None, merchant_id: int) -> str | None:
    """Return the path at which we serve a merchant's image; None if it is unavailable."""
    if (
        url is None
        or len(url) >= _URL_CHARS_MAX
        or parse_web_origin(url) is None
        or not url.isascii()
    ):
        return None
    if not (context.settings.sandbox or url.startswith("https://")):
        return None
    if context.pictures.has_failed(url):
        return None
    return f"/c/static/pictures/{context.pictures.make_name(url, merchant_id)}.webp"


async def get_picture(request: Request) -> Response:
    pictures = get_checkout_context(request).pictures
    source = pictures.parse_name(request.path_params["name"])
    content = await pictures.get(source) if source else None
    if content is None:
        response = error_response(ErrorCode.NOT_FOUND, "no such picture", 404)
        response.headers["Cache-Control"] = "no-store"  # it may become available later
        return response
    return Response(content, 200, files.HEADERS | _CACHE_HOUR, "image/webp")
