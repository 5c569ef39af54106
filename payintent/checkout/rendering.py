"""Templates, language options, headers and error pages for the hosted checkout."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial, wraps
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.checkout.languages import Language, load_language, negotiate_language
from payintent.checkout.page_fields import embedding_frame, make_return_link, read_page_url
from payintent.checkout.static_files import page_style, picture_path, static_url
from payintent.checkout.steps import api_url
from payintent.core.addresses import get_linkable_url
from payintent.core.errors import ErrorCode, LockTimeoutError, RefusedError, StorageUnavailableError
from payintent.core.languages import OWN_NAMES
from payintent.fraud.model import FraudDeniedError
from payintent.http.application import Handler
from payintent.http.bodies import BodyTooLargeError
from payintent.http.errors import Failure, render_failures
from payintent.http.middleware import ScriptSources, content_security_policy
from payintent.http.pages.static_files import html_response, make_environment
from payintent.merchants.model import Merchant
from payintent.runtime.encryption import EncryptionKeyError

#: Headers of every response to buyers. The middleware adds `Cache-Control: no-store`.
HEADERS = {
    "Referrer-Policy": "no-referrer",  # anyone who has the URL has access
    "Vary": "Accept-Language, Accept-Encoding",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}
_OPTION_LISTS_MAX = 1_000  # cached lists of about 3 KiB, 53 per language
_templates = make_environment("checkout/templates")
OWN_SCRIPTS = ScriptSources()
#: Translation keys of error messages; the default is `sorry_other`.
_MESSAGE_KEYS: Mapping[ErrorCode | type[Exception], str] = {
    ErrorCode.CHECKOUT_NOT_FOUND: "sorry_not_found",
    ErrorCode.RATE_LIMITED: "sorry_many",
    StorageUnavailableError: "sorry_later",
    LockTimeoutError: "sorry_busy",
    EncryptionKeyError: "sorry_unreadable",
}
#: Errors that a retry cannot fix. Their pages have no retry link.
_NOT_RETRYABLE = frozenset({ErrorCode.CHECKOUT_NOT_FOUND, BodyTooLargeError, EncryptionKeyError})


def page_language(request: Request, fallback: str) -> Language:
    requested_locale = request.query_params.get("lang")
    accept_language = request.headers.get("accept-language", "")
    return load_language(negotiate_language(requested_locale, accept_language, fallback))


@lru_cache(maxsize=_OPTION_LISTS_MAX)
def country_options(locale: str, country: str) -> str:
    """Return escaped HTML `<option>` elements for the countries, with `country` selected."""
    return _render_options(load_language(locale).countries, country, are_languages=False)


@lru_cache(maxsize=_OPTION_LISTS_MAX)
def language_options(locale: str) -> str:
    """Return escaped HTML `<option>` elements for the languages, with `locale` selected."""
    return _render_options(OWN_NAMES, locale, are_languages=True)


def _render_options(choices: Mapping[str, str], selected: str, *, are_languages: bool) -> str:
    template = _templates.get_template("options.html")
    fields = {"choices": choices.items(), "selected": selected, "are_languages": are_languages}
    return template.render(fields)


def common_fields(language: Language) -> dict[str, Any]:
    return {
        "language": language,
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


def with_error_pages(handler: Handler) -> Handler:
    """Decorate a handler so that its errors are rendered as HTML pages."""

    @render_failures(_failure_page)
    @wraps(handler)
    async def respond(request: Request) -> Response:
        try:
            return await handler(request)
        except FraudDeniedError:
            return await _denial_page(request)

    return respond


def _failure_page(request: Request, failure: Failure) -> Response:
    reason = failure.code if failure.exception_type is RefusedError else failure.exception_type
    checkout_id = request.path_params.get("checkout_id")
    retry_url = None
    if checkout_id and reason not in _NOT_RETRYABLE:
        retry_url = read_page_url(request, checkout_id).current
    fields = _error_fields(
        page_language(request, "en"), "sorry", _MESSAGE_KEYS.get(reason, "sorry_other")
    )
    policy = content_security_policy(styles=[page_style().csp_source])
    page = fields | {"tone": "bad", "retry_url": retry_url}
    return render_page(request, "sorry.html", page, policy, failure.status)


def _error_fields(language: Language, heading: str, message: str) -> dict[str, Any]:
    return common_fields(language) | {
        "title": language.t(heading),
        "heading": language.t(heading),
        "message": language.t(message),
        "tone": "plain",
        "status": None,
        "retry_url": None,
        "return_url": None,
        "merchant": None,
    }


def merchant_policy(
    context: CheckoutContext,
    merchant: Merchant,
    scripts: ScriptSources = OWN_SCRIPTS,
    form_targets: Iterable[str | None] = (),
) -> str:
    """Return the content security policy of a page that the merchant may embed.

    It allows the merchant's accent colour, and requests to the API even if the API has a
    different origin.
    """
    origin = api_url(context.settings)[1]
    connections = (*scripts.connections, *([origin] if origin else ()))
    return content_security_policy(
        frame_ancestors=merchant.origins,
        form_targets=form_targets,
        scripts=replace(scripts, connections=connections),
        styles=[page_style(merchant.accent_colour).csp_source],
    )


async def _denial_page(request: Request) -> Response:
    """Render a fraud denial with a link back to the shop. The reason is not disclosed."""
    context = get_checkout_context(request)
    snapshot = await context.payment_lookup.find_checkout_payment(
        request.path_params["checkout_id"]
    )
    merchant = (await context.merchants.get(snapshot.payment.merchant_id)).merchant
    language = page_language(request, merchant.locale)
    fields = _error_fields(language, "blocked", "blocked_text") | {
        "status": "BLOCKED",
        "return_url": make_return_link(snapshot, merchant),
        "merchant": keep_linkable_urls(merchant),
        "logo": picture_path(context, merchant.logo_url, merchant.id),
        "style": page_style(merchant.accent_colour),
        "embed": embedding_frame(read_page_url(request, snapshot.payment.checkout_id), merchant),
        "scripts": ["checkout.js"],
    }
    return render_page(request, "sorry.html", fields, merchant_policy(context, merchant))


def keep_linkable_urls(merchant: Merchant) -> Merchant:
    return replace(
        merchant,
        support_url=get_linkable_url(merchant.support_url),
        terms_url=get_linkable_url(merchant.terms_url),
    )
