"""The error codes, compared with a second copy of the specification's section 7.1."""

from payintent.core.errors import ErrorCode, RefusedError
from payintent.http.errors import STATUS_BY_CODE, get_http_status

SPECIFIED = {
    400: "BAD_REQUEST INVALID_CURRENCY",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND CHECKOUT_NOT_FOUND PAYMENT_METHOD_NOT_FOUND",
    409: "CONFLICT IDEMPOTENCY_CONFLICT INVALID_CHECKOUT_STATE INVALID_PAYMENT_STATE "
    "INVALID_TRANSITION REFUND_EXCEEDS_REMAINING",
    410: "CHECKOUT_EXPIRED SESSION_GONE",
    422: "INVALID_AMOUNT UNPROCESSABLE UNSUPPORTED_CURRENCY UNSUPPORTED_COUNTRY "
    "PAYMENT_TOKEN_NOT_AVAILABLE PG_NOT_AVAILABLE",
    429: "RATE_LIMITED",
    500: "INTERNAL_ERROR SERVER_ERROR",
    501: "NOT_IMPLEMENTED",
    502: "PG_UPSTREAM_ERROR",
    503: "SERVICE_UNAVAILABLE REFUND_PROVIDER_UNAVAILABLE",
}


def test_the_28_error_codes_have_the_specified_http_statuses() -> None:
    expected = {code: status for status, codes in SPECIFIED.items() for code in codes.split()}
    assert len(expected) == 28
    assert {code.value: STATUS_BY_CODE[code] for code in ErrorCode} == expected
    assert STATUS_BY_CODE.keys() == set(ErrorCode)


def test_a_malformed_amount_returns_400_and_an_invalid_amount_422() -> None:
    assert (
        get_http_status(RefusedError(ErrorCode.INVALID_AMOUNT, "amount", is_malformed=True)) == 400
    )
    assert get_http_status(RefusedError(ErrorCode.INVALID_AMOUNT, "amount")) == 422
