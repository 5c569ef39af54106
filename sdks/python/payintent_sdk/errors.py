"""Every error that this library raises; all of them are a `PayintentError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from payintent_sdk.models import FraudDecision


class PayintentError(Exception):
    """Any error of this library."""


class NoAnswerError(PayintentError):
    """The service was unreachable or did not respond in time, in all attempts.

    The request may have taken effect. Repeat it with the same idempotency key.
    """


class UnreadableAnswerError(PayintentError):
    """The response is not from the service, but for example a proxy's error page."""


class PaymentDeniedError(PayintentError):
    """The fraud rules deny this payment: nothing was created, and the key stays used."""

    def __init__(self, decision: FraudDecision) -> None:
        super().__init__(f"{decision.code}: {decision.message}")
        self.decision = decision


class ApiError(PayintentError):
    """The service rejected a request.

    `code` is the error code, a string that may be newer than this release, and `status` the HTTP
    status. Include `request_id` in support requests. `retry_after_s` is set if the service sent it.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class BadRequestError(ApiError):
    """The request is malformed (400, 413, 415)."""


class InvalidAmountError(ApiError):
    """The amount is no amount of its currency, or none that can be paid."""


class UnsupportedError(ApiError):
    """The merchant cannot be paid in this currency or country."""


class AuthenticationError(ApiError):
    """The key is missing or invalid (401)."""


class ForbiddenError(ApiError):
    """The key has no access: the payment belongs to a different merchant or mode (403)."""


class NotFoundError(ApiError):
    """There is no such payment, refund or event (404)."""


class ConflictError(ApiError):
    """The payment's state does not allow it, or a concurrent request is in progress (409)."""


class IdempotencyConflictError(ConflictError):
    """The idempotency key was used with a different body."""


class InvalidStateError(ConflictError):
    """The payment's state does not allow it."""


class RefundExceedsRemainingError(ApiError):
    """More is to be refunded than is left."""


class UnprocessableError(ApiError):
    """The request is well formed and cannot be done (422)."""


class RateLimitedError(ApiError):
    """Too many requests, as often as it was tried (429)."""


class ServiceError(ApiError):
    """The service failed, or is away, as often as it was tried (5xx)."""


_BY_CODE: dict[str, type[ApiError]] = {
    "INVALID_AMOUNT": InvalidAmountError,
    "INVALID_CURRENCY": UnsupportedError,
    "UNSUPPORTED_CURRENCY": UnsupportedError,
    "UNSUPPORTED_COUNTRY": UnsupportedError,
    "IDEMPOTENCY_CONFLICT": IdempotencyConflictError,
    "INVALID_PAYMENT_STATE": InvalidStateError,
    "INVALID_CHECKOUT_STATE": InvalidStateError,
    "INVALID_TRANSITION": InvalidStateError,
    "REFUND_EXCEEDS_REMAINING": RefundExceedsRemainingError,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: BadRequestError,
    415: BadRequestError,
    422: UnprocessableError,
    429: RateLimitedError,
}
_SERVER_ERRORS = 500


def error_class(status: int, code: str) -> type[ApiError]:
    """Return the class of an error: by its code, else by its status."""
    other = ServiceError if status >= _SERVER_ERRORS else ApiError
    return _BY_CODE.get(code) or _BY_STATUS.get(status) or other


class WebhookError(PayintentError):
    """A webhook is not to be believed: answer 400, and do nothing."""


class WebhookHeaderError(WebhookError):
    """A header that every webhook carries is missing or malformed."""


class WebhookTimeError(WebhookError):
    """The webhook is too old, or from the future: somebody may have recorded and repeated it."""


class WebhookSignatureError(WebhookError):
    """No signature matches any of the secrets."""


class WebhookBodyError(WebhookError):
    """It is signed well, and is no event."""
