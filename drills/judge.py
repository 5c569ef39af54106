"""Detects lost and duplicate payments, and missing events."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drills.load import CANCEL, CREATE, Call

_CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class StoredPayment:
    """A payment in the database. `key` is its idempotency key, stored as `payer_uid`."""

    payment_id: str
    key: str
    status: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Payment IDs or idempotency keys with a problem. All sets must be empty."""

    #: Acknowledged creates that were not stored, and acknowledged cancellations that had no effect.
    lost: frozenset[str]
    doubled: frozenset[str]  # keys with two payments, payments with two events
    missing: frozenset[str]  # cancelled payments whose event was not stored or not delivered

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.missing)


def judge(
    calls: Iterable[Call],
    stored: Sequence[StoredPayment],
    events: Sequence[str],
    delivered: Iterable[str],
) -> Verdict:
    """Compare the responses to clients with the stored payments and the delivered webhooks.

    `events` and `delivered` contain the payment ID of each stored event and received webhook.
    """
    fine = [call for call in calls if call.is_ok]
    created = [call for call in fine if call.kind == CREATE]
    cancelled = {call.payment_id for call in fine if call.kind == CANCEL}
    status = {payment.payment_id: payment.status for payment in stored}
    lost = {call.payment_id for call in created if call.payment_id not in status}
    lost |= {payment_id for payment_id in cancelled if status.get(payment_id) != _CANCELLED}
    ended = cancelled | {payment_id for payment_id in status if status[payment_id] == _CANCELLED}
    delivered_ids = set(delivered)
    missing = {key for key in ended if key not in delivered_ids or key not in set(events)}
    return Verdict(
        frozenset(lost), frozenset(_doubled(created, stored, events)), frozenset(missing)
    )


def _doubled(
    created: Iterable[Call], stored: Iterable[StoredPayment], events: Iterable[str]
) -> set[str]:
    payments: defaultdict[str, set[str]] = defaultdict(set)
    for call in created:
        payments[call.key].add(call.payment_id)
    for payment in stored:
        payments[payment.key].add(payment.payment_id)
    twice = {key for key, payment_ids in payments.items() if len(payment_ids) > 1}
    return twice | {payment_id for payment_id, count in Counter(events).items() if count > 1}
