"""Refunds of captures, which succeed immediately, succeed later, or fail."""

import secrets
from typing import Literal

from msgspec import Struct

from payintent_sandbox.emulators.clock import ScaledClock
from payintent_sandbox.emulators.simulator.callbacks import Callbacks
from payintent_sandbox.emulators.simulator.cards import Refunding
from payintent_sandbox.emulators.simulator.model import (
    Account,
    Capture,
    Refund,
    RefundOrder,
    RefundStatus,
    RefusalError,
    Session,
)

REFUNDS_MAX = 200_000
PENDING_S = 60
_REFUSED = "the card's bank refuses refunds"
_BEGINS = {
    Refunding.PENDING: RefundStatus.PENDING,
    Refunding.REFUSED: RefundStatus.REFUSED,
}


class Settled(Struct, frozen=True, forbid_unknown_fields=True):
    """A tester's decision on a pending refund."""

    status: Literal["succeeded", "refused"]


class Refunds:
    """All of the simulator's refunds; references are unique per account."""

    def __init__(self, clock: ScaledClock, callbacks: Callbacks) -> None:
        self._clock = clock
        self._callbacks = callbacks
        self._refunds: dict[str, Refund] = {}
        self._by_reference: dict[tuple[str, str], Refund] = {}

    def create(
        self, account: Account, order: RefundOrder, session: Session | None, *, is_mended: bool
    ) -> tuple[Refund, bool]:
        """Refund a session, or return the existing refund with this reference.

        The flag is True for a new refund. If `is_mended` is set, cards that simulate an outage
        accept refunds again.
        """
        existing = self.find(account, order.reference)
        if existing:
            if _same(existing.order) != _same(order):
                raise RefusalError(409, "this reference was used for a different refund")
            return existing, False
        if session is None or session.capture is None:
            raise RefusalError(404, "no such capture")
        refunding = session.card.refunding if session.card else Refunding.AT_ONCE
        if refunding is Refunding.OUT_OF_ORDER and not is_mended:
            raise RefusalError(503, "refunds for this card are unavailable")
        _check(order, session.capture)
        if len(self._refunds) >= REFUNDS_MAX:
            raise RefusalError(503, f"{REFUNDS_MAX} refunds are stored; restart the simulator")
        return self._begin(account, order, session.capture, refunding), True

    def find(self, account: Account, name: str) -> Refund | None:
        """Find a refund of an account by its id or by the merchant's reference."""
        refund = self._refunds.get(name) or self._by_reference.get((account.api_key, name))
        return refund if refund and refund.account is account else None

    def settle(self, refund_id: str, settled: Settled) -> Refund:
        """Decide a pending refund before its delay is over."""
        refund = self._refunds.get(refund_id)
        if refund is None:
            raise RefusalError(404, "no such refund")
        if refund.status is not RefundStatus.PENDING:
            raise RefusalError(409, f"the refund is {refund.status}")
        self._end(refund, RefundStatus(settled.status))
        return refund

    def _begin(
        self, account: Account, order: RefundOrder, capture: Capture, refunding: Refunding
    ) -> Refund:
        refund = Refund(
            id=f"re_{secrets.token_hex(12)}",
            account=account,
            order=order,
            status=RefundStatus.PENDING,
        )
        self._refunds[refund.id] = refund
        self._by_reference[account.api_key, order.reference] = refund
        capture.refunds.append(refund)
        status = _BEGINS.get(refunding, RefundStatus.SUCCEEDED)
        if status is RefundStatus.PENDING:
            self._clock.start(self._succeed_later(refund))
        else:
            self._end(refund, status)
        return refund

    async def _succeed_later(self, refund: Refund) -> None:
        await self._clock.wait(PENDING_S)
        if refund.status is RefundStatus.PENDING:  # a tester may have decided in the meantime
            self._end(refund, RefundStatus.SUCCEEDED)

    def _end(self, refund: Refund, status: RefundStatus) -> None:
        refund.status = status
        refund.reason = _REFUSED if status is RefundStatus.REFUSED else None
        self._clock.start(self._callbacks.send_refund(refund))


def _check(order: RefundOrder, capture: Capture) -> None:
    if order.currency != capture.currency:
        raise RefusalError(422, f"the capture is in {capture.currency}")
    left = capture.amount_minor - capture.refunded_minor
    if order.amount_minor > left:
        raise RefusalError(422, f"only {left} minor units can still be refunded")


def _same(order: RefundOrder) -> tuple[str, int, str]:
    return order.capture, order.amount_minor, order.currency
