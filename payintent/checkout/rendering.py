"""Template rendering, language options and headers of hosted pages."""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payintent.checkout.languages import OWN_NAMES, Language, load_language, negotiate_language
from payintent.checkout.static_files import page_style, static_url
from payintent.http.pages.static_files import html_response, make_environment

#: Headers of every response to buyers. The middleware adds `Cache-Control: no-store`.
HEADERS = {
    "Referrer-Policy": "no-referrer",  # the URL alone grants access
    "Vary": "Accept-Language, Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}
_OPTIONS_MAX = 1_000  # cached lists of about 3 KiB, 53 per language
_templates = make_environment("checkout/templates")


def page_language(request: Request, fallback: str) -> Language:
    accepted = request.headers.get("accept-language", "")
    return load_language(negotiate_language(request.query_params.get("lang"), accepted, fallback))


@lru_cache(maxsize=_OPTIONS_MAX)
def country_options(locale: str, country: str) -> str:
    """Return escaped HTML `<option>` elements for the countries, with `country` selected."""
    return _options(load_language(locale).countries, country, are_languages=False)


@lru_cache(maxsize=_OPTIONS_MAX)
def language_options(locale: str) -> str:
    """Return escaped HTML `<option>` elements for the languages, with `locale` selected."""
    return _options(OWN_NAMES, locale, are_languages=True)


def _options(choices: Mapping[str, str], selected: str, *, are_languages: bool) -> str:
    template = _templates.get_template("options.html")
    fields = {"choices": choices.items(), "chosen": selected, "are_languages": are_languages}
    return template.render(fields)


def common_fields(language: Language) -> dict[str, Any]:
    return {
        "texts": language,
        "t": language.t,
        "asset": partial(static_url, locale=language.locale),
        "style": page_style(),
        "embed": None,
        "scripts": [],
    }


def render_page(
    request: Request, template: str, fields: dict[str, Any], policy: str, status: int = 200
) -> Response:
    html = _templates.get_template(template).render(fields)
    return html_response(request, html, {**HEADERS, "Content-Security-Policy": policy}, status)
