"""Pages for buyers who are refused: every route of the page answers with one, never with JSON."""

from collections.abc import Mapping
from dataclasses import replace
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.application import Handler
from payintent.api.content_security_policy import ScriptSources, content_security_policy
from payintent.api.errors import Failure, answer_failures
from payintent.api.request_body import BodyTooLargeError
from payintent.checkout.context import CheckoutContext, get_checkout_context
from payintent.checkout.page_fields import embedding_frame, read_page_url
from payintent.checkout.pictures import picture_path
from payintent.checkout.rendering import (
    common_fields,
    page_language,
    render_error_page,
    render_page,
)
from payintent.checkout.static_files import page_style
from payintent.checkout.wallet_step import api_address
from payintent.domain.errors import (
    ErrorCode,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.domain.fraud import FraudDeniedError
from payintent.domain.web_origin import web_url
from payintent.encryption import EncryptionKeyError

OUR_SCRIPTS = ScriptSources()
#: The texts of refusals and of other failures; those of all others are `sorry_other`.
_SORRY: Mapping[ErrorCode | type[Exception], str] = {
    ErrorCode.CHECKOUT_NOT_FOUND: "sorry_not_found",
    ErrorCode.RATE_LIMITED: "sorry_many",
    StorageUnavailableError: "sorry_later",
    LockTimeoutError: "sorry_busy",
    EncryptionKeyError: "sorry_unreadable",
}
#: Failures that trying again does not help.
_FINAL = frozenset({ErrorCode.CHECKOUT_NOT_FOUND, BodyTooLargeError, EncryptionKeyError})


def answers_with_pages(handler: Handler) -> Handler:
    """Answer a failure with a page: buyers open these addresses in a browser."""

    @answer_failures(_failure_page)
    @wraps(handler)
    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except FraudDeniedError:
            return await _blocked(request)

    return answered


def _failure_page(request: Request, failure: Failure) -> Response:
    reason = failure.code if failure.kind is RefusedError else failure.kind
    checkout_id = request.path_params.get("checkout_id")
    again = None
    if checkout_id and reason not in _FINAL:
        again = read_page_url(request, checkout_id).current
    return render_error_page(request, _SORRY.get(reason, "sorry_other"), failure.status, again)


def asking(context: CheckoutContext, step: ScriptSources = OUR_SCRIPTS) -> ScriptSources:
    """Add the API's origin, which the page calls and which may be another one."""
    api = api_address(context.settings)[1]
    return replace(step, connections=(*step.connections, *([api] if api else ())))


async def _blocked(request: Request) -> Response:
    """Show a denied buyer the denial and the way back, but no reason."""
    context = get_checkout_context(request)
    snapshot = await context.payment_lookup.find_checkout_payment(
        request.path_params["checkout_id"]
    )
    merchant = (await context.merchants.get(snapshot.payment.merchant_id)).merchant
    language = page_language(request, merchant.locale)
    fields = common_fields(language) | {
        "title": language.t("blocked"),
        "heading": language.t("blocked"),
        "message": language.t("blocked_text"),
        "mood": "plain",
        "status": "BLOCKED",
        "again": None,
        "merchant": replace(
            merchant,
            return_url=web_url(merchant.return_url),
            support_url=web_url(merchant.support_url),
            terms_url=web_url(merchant.terms_url),
        ),
        "logo": picture_path(context, merchant.logo_url, merchant.id),
        "style": page_style(merchant.accent_colour),
        "embed": embedding_frame(read_page_url(request, snapshot.payment.checkout_id), merchant),
        "scripts": ["checkout.js"],
    }
    policy = content_security_policy(
        frame_ancestors=merchant.origins,
        scripts=asking(context),
        styles=[page_style(merchant.accent_colour).source],
    )
    return render_page(request, "sorry.html", fields, policy)
