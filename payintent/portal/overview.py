"""The first page of the portal: webhook endpoint health, problems and recent payments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from starlette.responses import Response

from payintent.cases import list_store as case_lists
from payintent.cases.list_store import CaseFilter, MerchantCase
from payintent.db.database import get_current_time
from payintent.members.model import MemberRight
from payintent.merchants import access_store
from payintent.payments.lookup import list_merchant_payments
from payintent.payments.schemas import read_payment_filter
from payintent.portal.payments import make_payment_row
from payintent.portal.visits import MemberVisit, member_page
from payintent.refunds import list_store as refund_lists
from payintent.refunds.list_store import MerchantRefundFilter
from payintent.refunds.model import RefundStatus
from payintent.webhooks import endpoints_store
from payintent.webhooks.endpoints_store import COUNT_MAX, EndpointHealth, RecentAttempt
from payintent.webhooks.model import AttemptOutcome

_PAYMENTS_MAX = 10
_CASES_MAX = 100
_REFUNDS_MAX = 100
_REFUND_DAYS = 7
_KEYS_MAX = 1_000
_CALLBACK_URL_CHARS_MAX = 200
_OUTCOMES: dict[str, str] = {
    AttemptOutcome.HTTP_ERROR: "your server responded with an error",
    AttemptOutcome.TIMEOUT: "your server did not respond in time",
    AttemptOutcome.CONNECT_ERROR: "the connection to your server failed",
    AttemptOutcome.BLOCKED: "the callback URL or its address is not allowed",
    AttemptOutcome.TLS_ERROR: "the TLS certificate or handshake was not valid",
    AttemptOutcome.BAD_RESPONSE: "your server did not send a valid HTTP response",
    AttemptOutcome.REDIRECT: "your server responded with a redirect, which is not followed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A link to rows that need attention."""

    count: int
    limit: int  # maximum of `count`
    noun: str  # in the singular
    text: str
    url: str


@dataclass(frozen=True, slots=True)
class KeyUse:
    active: int
    last_used_at: datetime | None


@member_page()
async def get_overview(visit: MemberVisit) -> Response:
    database = visit.context.database
    health = await endpoints_store.get_endpoint_health(database, visit.merchant_id)
    payment_filter = replace(read_payment_filter({}, visit.merchant_id), limit=_PAYMENTS_MAX)
    snapshots, _ = await list_merchant_payments(
        database, visit.context.read_database, payment_filter
    )
    return visit.render(
        "overview.html",
        "Overview",
        health=health,
        callback_url=health.callback_url and hide_url_secrets(health.callback_url),
        failure_text=health.last_failure and describe_failure(health.last_failure),
        count_max=COUNT_MAX,
        now=await get_current_time(database),
        problems=await _list_problems(visit, health),
        rows=[make_payment_row(snapshot) for snapshot in snapshots],
        key_use=await _read_key_use(visit) if visit.may(MemberRight.SEE_KEYS) else None,
    )


async def _read_key_use(visit: MemberVisit) -> KeyUse:
    keys = await access_store.list_keys(visit.context.database, visit.merchant_id, _KEYS_MAX)
    uses = [key.last_used_at for key in keys if key.last_used_at is not None]
    return KeyUse(
        active=sum(key.revoked_at is None for key in keys), last_used_at=max(uses, default=None)
    )


def hide_url_secrets(url: str) -> str:
    """Return a URL without its credentials and query string, truncated if it is long."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    text = f"{parts.scheme}://{host}{parts.path}{'?…' if parts.query else ''}"
    return text if len(text) <= _CALLBACK_URL_CHARS_MAX else f"{text[:_CALLBACK_URL_CHARS_MAX]}…"


def describe_failure(attempt: RecentAttempt) -> str:
    text = _OUTCOMES.get(attempt.outcome, attempt.outcome)
    return text if attempt.status is None else f"{text} (HTTP {attempt.status})"


async def _list_problems(visit: MemberVisit, health: EndpointHealth) -> list[Problem]:
    database, merchant_id = visit.context.database, visit.merchant_id
    now = await get_current_time(database)
    cases = await case_lists.list_for_merchant(
        database, CaseFilter(merchant_id=merchant_id, status="OPEN"), _CASES_MAX
    )
    failed_refunds = await refund_lists.list_by_update(
        database,
        MerchantRefundFilter(
            merchant_id=merchant_id,
            status=RefundStatus.FAILED,
            updated_since=now - timedelta(days=_REFUND_DAYS),
        ),
        _REFUNDS_MAX,
    )
    problems = [
        Problem(
            count=health.dead,
            limit=COUNT_MAX,
            noun="event",
            text="not delivered, and no longer retried",
            url="/merchant/events?state=dead",
        ),
        *_list_case_problems(cases, now),
        Problem(
            count=len(failed_refunds),
            limit=_REFUNDS_MAX,
            noun="refund",
            text=f"failed in the last {_REFUND_DAYS} days",
            url="/merchant/refunds?status=FAILED",
        ),
    ]
    return [problem for problem in problems if problem.count]


def _list_case_problems(cases: Sequence[MerchantCase], now: datetime) -> Iterator[Problem]:
    yield Problem(
        count=len(cases),
        limit=_CASES_MAX,
        noun="case",
        text="open",
        url="/merchant/cases?status=OPEN",
    )
    deadlines = [
        case.dispute.respond_by
        for case in cases
        if case.dispute and case.dispute.respond_by and case.dispute.respond_by > now
    ]
    if deadlines:
        yield Problem(
            count=len(deadlines),
            limit=_CASES_MAX,
            noun="dispute",
            text=f"awaiting a response, the first due by {min(deadlines):%Y-%m-%d %H:%M} UTC",
            url="/merchant/cases?status=OPEN",
        )
