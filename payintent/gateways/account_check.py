"""What every adapter's check of an account has in common: problems that no gateway words itself."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from payintent.domain.gateway import (
    AccountCheck,
    AccountProblem,
    GatewayAccount,
    NotContacted,
    OutcomeUnknown,
)
from payintent.domain.web_origin import web_origin
from payintent.gateways.http_client import HttpAnswer

#: Signatures with a time are refused beyond some minutes; clocks in order differ by less than this.
CLOCK_TOLERANCE_S = 60
_TEXT_CHARS_MAX = 100
_SERVER_ERROR = 500
_THROTTLING = frozenset({403, 429})


def works(detail: str) -> AccountCheck:
    return AccountCheck(problem=None, detail=detail)


def refused(detail: str) -> AccountCheck:
    return AccountCheck(problem=AccountProblem.CREDENTIALS, detail=detail)


def common_problem(
    account: GatewayAccount, answer: HttpAnswer | OutcomeUnknown, now: float
) -> AccountCheck | None:
    """Return a problem that has nothing to do with the gateway's own protocol; None: read on."""
    where = web_origin(account.base_url) or "base_url"
    if isinstance(answer, NotContacted):
        return AccountCheck(problem=answer.problem, detail=f"{where}: {_connection_words(answer)}")
    if isinstance(answer, OutcomeUnknown):
        return AccountCheck(problem=AccountProblem.SILENCE, detail=f"{where}: {answer.detail}")
    ahead_s = _clock_ahead_s(answer, now)
    if abs(ahead_s) > CLOCK_TOLERANCE_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        return AccountCheck(
            problem=AccountProblem.CLOCK,
            detail=f"the clock of this host is {abs(ahead_s):.0f} s {way} the one of {where}",
        )
    if answer.status >= _SERVER_ERROR:
        return AccountCheck(
            problem=AccountProblem.SILENCE, detail=f"{where} answers with status {answer.status}"
        )
    return None


def not_understood(account: GatewayAccount, answer: HttpAnswer) -> AccountCheck:
    where = web_origin(account.base_url) or "base_url"
    if answer.status in _THROTTLING:
        return AccountCheck(
            problem=AccountProblem.THROTTLED,
            detail=f"{where} limits requests, or refuses this host: status {answer.status}",
        )
    return AccountCheck(
        problem=AccountProblem.OTHER_GATEWAY,
        detail=f"what answers at {where} is not {account.provider}: status {answer.status}",
    )


def plain_text(text: str) -> str:
    """Return a gateway's own words, cut, and without characters that a terminal could obey."""
    return "".join(char for char in text if char.isprintable())[:_TEXT_CHARS_MAX]


def _connection_words(answer: NotContacted) -> str:
    if answer.problem is AccountProblem.CREDENTIALS:
        return answer.detail
    if answer.problem is AccountProblem.TLS:
        return f"its certificate cannot be verified ({answer.detail})"
    return f"it cannot be reached ({answer.detail})"


def _clock_ahead_s(answer: HttpAnswer, now: float) -> float:
    """Return by how much our clock is ahead of the answer's `Date`; 0 where it has none."""
    try:
        date = parsedate_to_datetime(answer.date)
    except ValueError:
        return 0.0
    return now - (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def local_time(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
