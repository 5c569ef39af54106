"""The parts of account checks that all adapters share: connection, clock and server errors."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from payintent.core.addresses import web_origin
from payintent.gateways.http_client import HttpAnswer, HttpResult, printable_text
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
_THROTTLING = frozenset({403, 429})


def account_works(detail: str) -> AccountCheck:
    return AccountCheck(problem=None, detail=detail)


def credentials_rejected(detail: str) -> AccountCheck:
    return AccountCheck(problem=AccountProblem.CREDENTIALS, detail=detail)


def check_response(
    account: GatewayAccount, answer: HttpResult, now: float
) -> HttpAnswer | AccountCheck:
    """Return the response, or a problem that does not depend on the gateway's protocol."""
    origin = web_origin(account.base_url) or "base_url"
    if isinstance(answer, NotContacted):
        detail = f"{origin}: {_connection_problem(answer)}"
        return AccountCheck(problem=answer.problem, detail=detail)
    if isinstance(answer, OutcomeUnknown):
        return AccountCheck(problem=AccountProblem.NO_RESPONSE, detail=f"{origin}: {answer.detail}")
    ahead_s = _clock_ahead_s(answer, now)
    if abs(ahead_s) > CLOCK_TOLERANCE_S:
        relation = "ahead of" if ahead_s > 0 else "behind"
        return AccountCheck(
            problem=AccountProblem.CLOCK,
            detail=f"this host's clock is {abs(ahead_s):.0f} s {relation} the clock of {origin}",
        )
    if answer.status >= _SERVER_ERROR:
        return AccountCheck(
            problem=AccountProblem.NO_RESPONSE,
            detail=f"{origin} responds with status {answer.status}",
        )
    return answer


def unexpected_response(account: GatewayAccount, answer: HttpAnswer) -> AccountCheck:
    origin = web_origin(account.base_url) or "base_url"
    if answer.status in _THROTTLING:
        return AccountCheck(
            problem=AccountProblem.THROTTLED,
            detail=f"{origin} rate-limits or blocks this host: status {answer.status}",
        )
    return AccountCheck(
        problem=AccountProblem.OTHER_GATEWAY,
        detail=f"the server at {origin} is not {account.provider}: status {answer.status}",
    )


def plain_text(text: str) -> str:
    return printable_text(text, _TEXT_CHARS_MAX)


def _connection_problem(answer: NotContacted) -> str:
    if answer.problem is AccountProblem.CREDENTIALS:
        return answer.detail
    if answer.problem is AccountProblem.TLS:
        return f"its certificate cannot be verified ({answer.detail})"
    return f"it cannot be reached ({answer.detail})"


def _clock_ahead_s(answer: HttpAnswer, now: float) -> float:
    """Return how far our clock is ahead of the `Date` header, or 0 if there is none."""
    try:
        date = parsedate_to_datetime(answer.date)
    except ValueError:
        return 0.0
    return now - (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def format_utc(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
