"""Errors that the service answers with, and errors of the database and of chains."""

from enum import StrEnum

_QUOTED_MAX = 60


class ErrorCode(StrEnum):
    """The REST error codes of spec section 7.1; `api/errors.py` gives each its HTTP status."""

    BAD_REQUEST = "BAD_REQUEST"
    INVALID_AMOUNT = "INVALID_AMOUNT"
    INVALID_CURRENCY = "INVALID_CURRENCY"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    CHECKOUT_NOT_FOUND = "CHECKOUT_NOT_FOUND"
    PAYMENT_METHOD_NOT_FOUND = "PAYMENT_METHOD_NOT_FOUND"
    CONFLICT = "CONFLICT"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    INVALID_CHECKOUT_STATE = "INVALID_CHECKOUT_STATE"
    INVALID_PAYMENT_STATE = "INVALID_PAYMENT_STATE"
    INVALID_TRANSITION = "INVALID_TRANSITION"
    REFUND_EXCEEDS_REMAINING = "REFUND_EXCEEDS_REMAINING"
    CHECKOUT_EXPIRED = "CHECKOUT_EXPIRED"
    SESSION_GONE = "SESSION_GONE"
    UNPROCESSABLE = "UNPROCESSABLE"
    UNSUPPORTED_CURRENCY = "UNSUPPORTED_CURRENCY"
    UNSUPPORTED_COUNTRY = "UNSUPPORTED_COUNTRY"
    PAYMENT_TOKEN_NOT_AVAILABLE = "PAYMENT_TOKEN_NOT_AVAILABLE"  # noqa: S105 - a code
    PG_NOT_AVAILABLE = "PG_NOT_AVAILABLE"
    RATE_LIMITED = "RATE_LIMITED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    SERVER_ERROR = "SERVER_ERROR"  # the documented alias of INTERNAL_ERROR, never sent
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    PG_UPSTREAM_ERROR = "PG_UPSTREAM_ERROR"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    REFUND_PROVIDER_UNAVAILABLE = "REFUND_PROVIDER_UNAVAILABLE"


class RefusedError(Exception):
    """The service refuses a request, for a reason that the caller may read.

    `malformed` tells a text that could not be read from a value that was read and refused:
    `INVALID_AMOUNT` is 400 for the former and 422 for the latter. `retry_after_s` is whole seconds.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        malformed: bool = False,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.malformed = malformed
        self.retry_after_s = retry_after_s


class BadRequestError(RefusedError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BAD_REQUEST, message)


class NotFoundError(RefusedError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_FOUND, message)


class ConflictError(RefusedError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CONFLICT, message)


class UnprocessableError(RefusedError):
    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNPROCESSABLE, message)


class StorageUnavailableError(Exception):
    """The database cannot be reached or gave up; whether this attempt was stored is unknown."""


class DatabaseRefusedError(StorageUnavailableError):
    """The database refuses this role, password or name; trying again does not help."""


class StorageFullError(StorageUnavailableError):
    """The database has no space left; this attempt was not stored."""


class PermissionDeniedError(Exception):
    """The database role may not do what a statement needs; the message names the object."""


class ChainUnavailableError(Exception):
    """One endpoint of a chain, or all of them, gave no usable answer; the outcome is unknown."""


class LockTimeoutError(Exception):
    """Another transaction held the row for longer than the lock timeout."""


class InvalidTextError(Exception):
    """The database refuses a text: it is not valid JSON, or not valid Unicode."""


def quote_input(sent: str) -> str:
    """Quote an input in a message, cut short."""
    return repr(sent if len(sent) <= _QUOTED_MAX else sent[:_QUOTED_MAX] + "…")
