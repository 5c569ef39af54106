"""Decides which deposit addresses are swept, and when."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

#: The limit of the factory's `sweep_many`.
BATCH_MAX = 200
#: After this many failures, an address needs manual review.
FAILURES_MAX = 3
_RETRY_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsweptAddress:
    """An address whose final deposits of a token have not been claimed by a sweep."""

    account_id: int  # of the factory
    factory: bytes
    session_id: UUID
    uuid: bytes
    token: bytes
    amount: Decimal  # in tokens
    oldest_at: datetime
    failures: int  # our failed sweeps since the oldest deposit or the last requested sweep
    failed_at: datetime | None
    value_max: Decimal  # in tokens; a sweep is due at this total; 0 disables this condition


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPolicy:
    count: int
    after: timedelta
    requested_at: datetime | None  # deposits that were final at this time are swept immediately


@dataclass(frozen=True, slots=True)
class SweepBatch:
    """Addresses of one factory to sweep in one transaction, oldest deposits first."""

    addresses: Sequence[UnsweptAddress]

    @property
    def account_id(self) -> int:
        return self.addresses[0].account_id

    @property
    def factory(self) -> bytes:
        return self.addresses[0].factory

    @property
    def token(self) -> bytes:
        return self.addresses[0].token


def choose_batches(
    addresses: Iterable[UnsweptAddress], policy: SweepPolicy, now: datetime
) -> list[SweepBatch]:
    """Return the batches that are due, at most one per factory and token."""
    groups: dict[tuple[int, bytes], list[UnsweptAddress]] = {}
    for address in addresses:
        if _may_try(address, now):
            groups.setdefault((address.account_id, address.token), []).append(address)
    ordered = [sorted(group, key=lambda item: item.oldest_at) for group in groups.values()]
    return [SweepBatch(group[:BATCH_MAX]) for group in ordered if _is_due(group, policy, now)]


def _may_try(address: UnsweptAddress, now: datetime) -> bool:
    """Return whether a sweep may be attempted; the delay doubles with each failure."""
    if address.failed_at is None:
        return True
    delay = _RETRY_AFTER * 2 ** (address.failures - 1)
    return address.failures < FAILURES_MAX and address.failed_at + delay <= now


def _is_due(group: Sequence[UnsweptAddress], policy: SweepPolicy, now: datetime) -> bool:
    oldest_at, value_max = group[0].oldest_at, group[0].value_max
    return (
        len(group) >= policy.count
        or oldest_at + policy.after <= now
        or 0 < value_max <= sum(address.amount for address in group)
        or (policy.requested_at is not None and oldest_at <= policy.requested_at)
    )
