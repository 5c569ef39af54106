"""Every error that this library raises; all of them are a `PayintentError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from payintent_sdk.models import FraudDecision


class PayintentError(Exception):
    """Any error of this library."""


class NoAnswerError(PayintentError):
    """The service could not be reached, or did not answer in time, as often as it was tried.

    What was asked for may have been done: ask again with the same idempotency key.
    """


class UnreadableAnswerError(PayintentError):
    """What came is no answer of the service: the page of another server, for example."""


class PaymentDeniedError(PayintentError):
    """The fraud rules deny this payment: nothing was created, and the key stays used."""

    def __init__(self, decision: FraudDecision) -> None:
        super().__init__(f"{decision.code}: {decision.message}")
        self.decision = decision


class ApiError(PayintentError):
    """The service refused a request.

    `code` is its error code (a text, that may be a new one), `status` the HTTP status, `request_id`
    what to name to its operator, `retry_after_s` when to come back, where it said so.
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
    """The currency or country is not one in which the merchant can be paid."""


class AuthenticationError(ApiError):
    """There is no key, or not a valid one (401)."""


class ForbiddenError(ApiError):
    """The key may not do this: another merchant's payment, or the other mode (403)."""


class NotFoundError(ApiError):
    """There is no such payment, refund or event (404)."""


class ConflictError(ApiError):
    """The payment's state does not allow it, or another request is under way (409)."""


class IdempotencyConflictError(ConflictError):
    """The idempotency key was used with another body."""


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
    """No signature of it was made with one of the secrets."""


class WebhookBodyError(WebhookError):
    """It is signed well, and is no event."""
