"""Static files of the checkout: localised scripts, the style with a merchant's colour, flags."""

import json
import re
from functools import cache, lru_cache
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from payintent.checkout.accent import BRIGHT, DARK, Shades, accent_shades
from payintent.checkout.languages import LOCALES, load_language
from payintent.domain.countries import COUNTRIES
from payintent.domain.errors import ErrorCode, RefusedError
from payintent.web.inline_part import InlinePart, inline_part
from payintent.web.minify import minify_style
from payintent.web.static_files import HEADERS, StaticFiles

_NAMES = ("checkout.css", "checkout.js", "card.js", "offer.js", "onchain.js", "wallet.js")
_STYLE = "checkout.css"
_OFFER = "offer.js"
_FLAGS = frozenset(f"{country.lower()}.svg" for country in COUNTRIES)
_FOR_A_WHILE = {"Cache-Control": "public, max-age=3600"}
#: The placeholder of the texts in a script: an object that is empty in the source.
_TEXTS = re.compile(r"\{/\* texts \*/\}")
_KEY = re.compile(r'"([a-z]+_[a-z_]+|offline|copied)"')
_TINTED_MAX = 500  # style sheets in memory, about 10 KiB each


def static_url(name: str, locale: str = LOCALES[0]) -> str:
    return _files(locale).url(name)


@lru_cache(maxsize=_TINTED_MAX)
def page_style(colour: str | None = None) -> InlinePart:
    text = _files(LOCALES[0]).text(_STYLE)
    if colour is not None:
        shades = (_properties(accent_shades(colour, theme)) for theme in (BRIGHT, DARK))
        text += minify_style("{}@media (prefers-color-scheme: dark) {{ {} }}".format(*shades))
    return inline_part(text)


@cache
def offer_script(locale: str) -> InlinePart:
    return inline_part(_files(locale).text(_OFFER))


async def get_static_file(request: Request) -> Response:
    """`GET /c/static/{mark}/{name}`; an unknown mark gets the current file."""
    locale = request.path_params["mark"].partition("-")[2]
    files = _files(locale if locale in LOCALES else LOCALES[0])
    return await files.get(request)


async def get_flag(request: Request) -> Response:
    name: str = request.path_params["name"]
    if name not in _FLAGS:
        raise RefusedError(ErrorCode.NOT_FOUND, "no such file")
    content = (resources.files("payintent") / "checkout" / "static" / "flags" / name).read_bytes()
    return Response(content, 200, HEADERS | _FOR_A_WHILE, "image/svg+xml")


@cache
def _files(locale: str) -> StaticFiles:
    words = load_language(locale).words

    def with_texts(source: str) -> str:
        texts = {key: words[key] for key in dict.fromkeys(_KEY.findall(source)) if key in words}
        literal = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
        return _TEXTS.sub(lambda _: literal, source)

    return StaticFiles(
        "checkout/static", "/c/static", _NAMES, prepare=with_texts, suffix=f"-{locale}"
    )


def _properties(shades: Shades) -> str:
    return f":root {{ --act: {shades.button}; --on: {shades.text}; --link: {shades.link} }}"
