"""The errors of this library. Each is a `PayintentError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from payintent_sdk.models import FraudDecision


class PayintentError(Exception):
    """The base class of all errors in this library."""


class NoAnswerError(PayintentError):
    """In every attempt, the service was unreachable or did not respond in time.

    The request may have taken effect. Repeat it with the same idempotency key.
    """


class UnreadableAnswerError(PayintentError):
    """The response is not from the service; it may be a proxy's error page."""


class PaymentDeniedError(PayintentError):
    """The fraud rules denied the payment. Nothing was created, but the idempotency key was used."""

    def __init__(self, decision: FraudDecision) -> None:
        super().__init__(f"{decision.code}: {decision.message}")
        self.decision = decision


class ApiError(PayintentError):
    """The service rejected a request.

    `code` is the error code, which may have been introduced after this release, and `status` is the
    HTTP status. Include `request_id` in support requests. `retry_after_s` is set if the service
    sent it.
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
    """The amount is invalid for its currency, or cannot be paid."""


class UnsupportedError(ApiError):
    """The merchant cannot be paid in this currency or country."""


class AuthenticationError(ApiError):
    """The key is missing or invalid (401)."""


class ForbiddenError(ApiError):
    """The key has no access: the payment belongs to a different merchant or mode (403)."""


class NotFoundError(ApiError):
    """The payment, refund or event does not exist (404)."""


class ConflictError(ApiError):
    """The payment's state does not allow the request, or another request is in progress (409)."""


class IdempotencyConflictError(ConflictError):
    """The idempotency key was used with a different body."""


class InvalidStateError(ConflictError):
    """The payment's state does not allow the request."""


class RefundExceedsRemainingError(ApiError):
    """The refund exceeds the remaining amount."""


class UnprocessableError(ApiError):
    """The request is well-formed but cannot be fulfilled (422)."""


class RateLimitedError(ApiError):
    """The rate limit was exceeded in all attempts (429)."""


class ServiceError(ApiError):
    """The service failed or was unavailable in all attempts (5xx)."""


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
    """Return the class for an error code, or for its status if the code is unknown."""
    other = ServiceError if status >= _SERVER_ERRORS else ApiError
    return _BY_CODE.get(code) or _BY_STATUS.get(status) or other


class WebhookError(PayintentError):
    """A webhook is invalid. Respond with 401 and ignore it."""


class WebhookHeaderError(WebhookError):
    """A required header is missing or malformed."""


class WebhookTimeError(WebhookError):
    """The timestamp is too old or in the future. The request may be a replay attack."""


class WebhookSignatureError(WebhookError):
    """No signature matches any of the secrets."""


class WebhookBodyError(WebhookError):
    """The signature is valid, but the body is not an event."""
