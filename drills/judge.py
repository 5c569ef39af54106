"""What became of the payments: lost, doubled, or without their event."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from drills.load import CANCEL, CREATE, Call

_CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class StoredPayment:
    """A payment as the database has it; `key` is the create's, which the load stores with it."""

    payment_id: str
    key: str
    status: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What must all be empty, by payment or key."""

    lost: frozenset[str]  # acknowledged and not stored, or cancelled and not so stored
    doubled: frozenset[str]  # keys with two payments, payments with two events
    missing: frozenset[str]  # payments that ended and whose event was not stored or not delivered

    @property
    def is_clean(self) -> bool:
        """Tell whether nothing was lost, doubled or missing."""
        return not (self.lost or self.doubled or self.missing)


def judge(
    calls: Iterable[Call],
    stored: Sequence[StoredPayment],
    events: Sequence[str],
    delivered: Iterable[str],
) -> Verdict:
    """Compare what clients were told with what is stored and was delivered.

    `events` has the payment of each stored event, `delivered` of each webhook that came.
    """
    fine = [call for call in calls if call.is_ok]
    created = [call for call in fine if call.kind == CREATE]
    cancelled = {call.payment_id for call in fine if call.kind == CANCEL}
    status = {payment.payment_id: payment.status for payment in stored}
    lost = {call.payment_id for call in created if call.payment_id not in status}
    lost |= {payment_id for payment_id in cancelled if status.get(payment_id) != _CANCELLED}
    ended = cancelled | {payment_id for payment_id in status if status[payment_id] == _CANCELLED}
    told = set(delivered)
    missing = {found for found in ended if found not in told or found not in set(events)}
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
    twice = {key for key, found in payments.items() if len(found) > 1}
    return twice | {payment_id for payment_id, count in Counter(events).items() if count > 1}
