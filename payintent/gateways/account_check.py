"""Checks of a gateway connection and of this host's clock, shared by all adapters."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from payintent.core.addresses import parse_web_origin
from payintent.gateways.http_client import HttpResponse, HttpResult, printable_text
from payintent.gateways.port import (
    AccountCheck,
    AccountProblem,
    GatewayAccount,
    NotContacted,
    OutcomeUnknown,
)

CLOCK_TOLERANCE_S = 60  # gateways reject signatures that are a few minutes old
_TEXT_CHARS_MAX = 100
_SERVER_ERROR = 500
_THROTTLING_STATUSES = frozenset({403, 429})


def working_account(detail: str) -> AccountCheck:
    return AccountCheck(problem=None, detail=detail)


def rejected_credentials(detail: str) -> AccountCheck:
    return AccountCheck(problem=AccountProblem.CREDENTIALS, detail=detail)


def check_response(
    account: GatewayAccount, response: HttpResult, now: float
) -> HttpResponse | AccountCheck:
    """Return the response, or a problem that is independent of the gateway's protocol."""
    origin = parse_web_origin(account.base_url) or "base_url"
    if isinstance(response, NotContacted):
        return AccountCheck(
            problem=response.problem, detail=_describe_connection_problem(origin, response)
        )
    if isinstance(response, OutcomeUnknown):
        return AccountCheck(
            problem=AccountProblem.NO_RESPONSE, detail=f"{origin}: {response.detail}"
        )
    skew_s = _clock_skew_s(response, now)
    if abs(skew_s) > CLOCK_TOLERANCE_S:
        relation = "ahead of" if skew_s > 0 else "behind"
        return AccountCheck(
            problem=AccountProblem.CLOCK,
            detail=f"this host's clock is {abs(skew_s):.0f} s {relation} the clock of {origin}",
        )
    if response.status >= _SERVER_ERROR:
        return AccountCheck(
            problem=AccountProblem.NO_RESPONSE,
            detail=f"{origin} responds with status {response.status}",
        )
    return response


def unexpected_response(account: GatewayAccount, response: HttpResponse) -> AccountCheck:
    origin = parse_web_origin(account.base_url) or "base_url"
    if response.status in _THROTTLING_STATUSES:
        return AccountCheck(
            problem=AccountProblem.THROTTLED,
            detail=f"{origin} rate-limits or blocks this host: status {response.status}",
        )
    return AccountCheck(
        problem=AccountProblem.OTHER_GATEWAY,
        detail=f"the server at {origin} is not {account.provider}: status {response.status}",
    )


def plain_text(text: str) -> str:
    return printable_text(text, _TEXT_CHARS_MAX)


def _describe_connection_problem(origin: str, response: NotContacted) -> str:
    if response.problem is AccountProblem.CREDENTIALS:
        return f"{origin}: {response.detail}"
    if response.problem is AccountProblem.TLS:
        return f"the certificate of {origin} cannot be verified ({response.detail})"
    return f"{origin} cannot be reached ({response.detail})"


def _clock_skew_s(response: HttpResponse, now: float) -> float:
    """Return how many seconds this host's clock is ahead of the `Date` header, or 0 without it."""
    try:
        date = parsedate_to_datetime(response.date)
    except ValueError:
        return 0.0
    return now - (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def format_utc(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
