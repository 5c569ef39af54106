"""Callbacks to merchants, which are signed and repeated until they are acknowledged."""

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

from payintent_sandbox.emulators.notifier import Notifier
from payintent_sandbox.emulators.simulator.cards import Calling
from payintent_sandbox.emulators.simulator.journal import Journal
from payintent_sandbox.emulators.simulator.model import Account, Refund, Session, rfc3339, utc_now

RETRY_WAITS_S = (1, 5, 30, 120, 600)
LATE_S = 30

Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Notice:
    """An event, with its receiver and the reference of its subject."""

    account: Account
    url: str
    reference: str
    event: Event


class Callbacks:
    """Sends the callbacks of the simulator and logs them."""

    def __init__(self, notifier: Notifier, journal: Journal) -> None:
        self._notifier = notifier
        self._journal = journal

    async def send(self, session: Session, calling: Calling = Calling.ONCE) -> None:
        """Report a session's state to the merchant, and return after the first attempt.

        The event contains the state at the time of the call, even if it is delivered later.
        """
        notice = _of_session(session)
        if calling is Calling.NEVER:
            return
        if calling is Calling.LATE:
            await self._notifier.clock.wait(LATE_S)
        encodings = _encodings(notice.event)
        bodies = encodings if calling is Calling.THRICE else encodings[:1]
        flawed = calling is Calling.BADLY_SIGNED
        # Sent concurrently, because the receiver must handle the race.
        await asyncio.gather(*(self._deliver(notice, body, flawed=flawed) for body in bodies))

    async def send_refund(self, refund: Refund) -> None:
        """Report a refund's result to the merchant, and return after the first attempt."""
        notice = _of_refund(refund)
        await self._deliver(notice, _encodings(notice.event)[0], flawed=False)

    async def _deliver(self, notice: _Notice, body: bytes, *, flawed: bool) -> None:
        async def attempt(number: int) -> bool:
            return await self._try(notice, body, attempt=number, flawed=flawed and number == 1)

        await self._notifier.send_once(attempt)

    async def _try(self, notice: _Notice, body: bytes, *, attempt: int, flawed: bool) -> bool:
        headers = _signed(notice.account, notice.event["id"], body, flawed=flawed)
        entry = self._journal.add_callback(
            notice.event, body, reference=notice.reference, attempt=attempt, url=notice.url
        )
        answer = await self._notifier.post(notice.url, body, headers)
        entry |= {"error": answer.error} if answer.error else {"status": answer.status}
        return answer.is_success


def _of_session(session: Session) -> _Notice:
    return _Notice(
        account=session.account,
        url=session.order.callback_url,
        reference=session.order.reference,
        event=_event(f"session.{session.status}") | {"session": session.view()},
    )


def _of_refund(refund: Refund) -> _Notice:
    return _Notice(
        account=refund.account,
        url=refund.order.callback_url,
        reference=refund.order.reference,
        event=_event(f"refund.{refund.status}") | {"refund": refund.view()},
    )


def _event(kind: str) -> Event:
    return {
        "id": f"evt_{secrets.token_hex(12)}",
        "type": kind,
        "created_at": rfc3339(utc_now()),
    }


def _encodings(event: Event) -> list[bytes]:
    """Encode the same event in three ways: compact, in reverse order, indented."""
    backwards = dict(sorted(event.items(), reverse=True))
    texts = (
        json.dumps(event, separators=(",", ":")),
        json.dumps(backwards),
        json.dumps(event, indent=2, sort_keys=True),
    )
    return [text.encode() for text in texts]


def _signed(account: Account, event_id: str, body: bytes, *, flawed: bool) -> dict[str, str]:
    timestamp = str(int(time.time()))
    content = f"{event_id}.{timestamp}.".encode() + (b"flawed" if flawed else body)
    digest = hmac.new(account.signing_secret.encode(), content, hashlib.sha256).hexdigest()
    return {
        "content-type": "application/json",
        "sim-id": event_id,
        "sim-timestamp": timestamp,
        "sim-signature": f"v1={digest}",
    }
