"""Errors returned to API callers, and database and chain errors."""

from enum import StrEnum

_QUOTED_MAX = 60


class ErrorCode(StrEnum):
    """The error codes of spec section 7.1; `http/errors.py` maps them to HTTP statuses."""

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
    """A refused request; the message is shown to the caller.

    If `is_malformed`, a value could not be parsed: `INVALID_AMOUNT` is then returned with HTTP
    status 400 instead of 422. `retry_after_s` is in whole seconds.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        is_malformed: bool = False,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.is_malformed = is_malformed
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
    """The database is unreachable or has failed; changes may or may not have been stored."""


class DatabaseRefusedError(StorageUnavailableError):
    """The database rejected the role, password or database name; retrying does not help."""


class StorageFullError(StorageUnavailableError):
    """The database has no space left; nothing was stored."""


class PermissionDeniedError(Exception):
    """The database role lacks a privilege; the message names the object."""


class ChainUnavailableError(Exception):
    """A chain's endpoints did not return a usable response; the outcome is unknown."""


class LockTimeoutError(Exception):
    """A row was locked for longer than the lock timeout, or there was a deadlock."""


class InvalidTextError(Exception):
    """The database rejected text that is not valid JSON or Unicode."""


def quote_input(text: str) -> str:
    """Quote user input for an error message; long input is truncated."""
    return repr(text if len(text) <= _QUOTED_MAX else text[:_QUOTED_MAX] + "…")
