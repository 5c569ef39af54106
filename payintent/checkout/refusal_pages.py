"""Pages for buyers who are refused: every route of the page answers with one, never with JSON."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.content_security_policy import ScriptSources, content_security_policy
from payintent.api.context import AppContext, get_context
from payintent.api.errors import (
    RETRY_AFTER_S,
    again_s,
    http_status,
    note_bug,
    note_unreadable,
    refusal_log,
)
from payintent.api.request_body import BodyTooLargeError
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
    InvalidTextError,
    LockTimeoutError,
    RefusedError,
    StorageUnavailableError,
)
from payintent.domain.fraud import FraudDeniedError
from payintent.domain.web_origin import web_url
from payintent.encryption import EncryptionKeyError

Handler = Callable[[Request], Awaitable[Response]]

OUR_SCRIPTS = ScriptSources()
_SORRY = {
    ErrorCode.CHECKOUT_NOT_FOUND: "sorry_not_found",
    ErrorCode.RATE_LIMITED: "sorry_many",
}


def answers_with_pages(handler: Handler) -> Handler:
    """Answer a refusal with a page: buyers open these addresses in a browser."""

    @wraps(handler)
    async def answered(request: Request) -> Response:
        try:
            return await _answered(handler, request)
        except StorageUnavailableError as down:
            refusal_log(request).note(ErrorCode.SERVICE_UNAVAILABLE, str(down))
            return _later(request, "sorry_later", 503, again_s())
        except LockTimeoutError:
            return _later(request, "sorry_busy", 409, RETRY_AFTER_S)
        except InvalidTextError:
            return _later(request, "sorry_other", 400, None)
        except EncryptionKeyError as closed:
            note_unreadable(request, closed)
            return render_error_page(request, "sorry_unreadable", 500)
        except Exception as bug:  # noqa: BLE001 - a buyer cannot read JSON
            note_bug(request, bug)
            return _later(request, "sorry_other", 500, None)

    return answered


async def _answered(handler: Handler, request: Request) -> Response:
    try:
        return await handler(request)
    except BodyTooLargeError:
        return render_error_page(request, "sorry_other", 413)
    except FraudDeniedError:
        return await _blocked(request)
    except RefusedError as refused:
        key = _SORRY.get(refused.code, "sorry_other")
        if refused.code is ErrorCode.CHECKOUT_NOT_FOUND:
            return render_error_page(request, key, http_status(refused))
        return _later(request, key, http_status(refused), refused.retry_after_s)


def _later(request: Request, key: str, status: int, wait_s: int | None) -> Response:
    checkout_id = request.path_params.get("checkout_id")
    again = read_page_url(request, checkout_id).current if checkout_id else None
    response = render_error_page(request, key, status, again=again)
    if wait_s is not None:
        response.headers["Retry-After"] = str(wait_s)
    return response


def asking(app: AppContext, step: ScriptSources = OUR_SCRIPTS) -> ScriptSources:
    """Add the API's origin, which the page calls and which may be another one."""
    api = api_address(app.service.settings)[1]
    return replace(step, asks=(*step.asks, *([api] if api else ())))


async def _blocked(request: Request) -> Response:
    """Show a denied buyer the denial and the way back, but no reason."""
    app = get_context(request)
    snapshot = await app.service.payment_lookup.find_checkout_payment(
        request.path_params["checkout_id"]
    )
    merchant = (await app.service.merchants.get(snapshot.payment.merchant_id)).merchant
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
        "logo": picture_path(app, merchant.logo_url, merchant.id),
        "style": page_style(merchant.accent_colour),
        "embed": embedding_frame(read_page_url(request, snapshot.payment.checkout_id), merchant),
        "scripts": ["checkout.js"],
    }
    policy = content_security_policy(
        framed_by=merchant.origins,
        runs=asking(app),
        styles=[page_style(merchant.accent_colour).source],
    )
    return render_page(request, "sorry.html", fields, policy)
