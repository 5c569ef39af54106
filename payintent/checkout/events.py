"""The checkout event stream, which sends the current state and then every change."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from payintent.checkout.context import CheckoutContext
from payintent.checkout.visits import CheckoutVisit, checkout_route
from payintent.core import ids
from payintent.core.errors import LockTimeoutError, RefusedError, StorageUnavailableError
from payintent.db.notify import ChangeSubscriber
from payintent.http import responses
from payintent.onchain.wallet_sessions import ON_CHAIN_PROVIDERS, get_session_view
from payintent.payments import store as payment_store
from payintent.payments.model import TERMINAL
from payintent.payments.store import PaymentSnapshot
from payintent.runtime.json_format import format_timestamp
from payintent.runtime.log import get_logger

_log = get_logger("events")
_VERSION_DIGITS_MAX = 9
CHECKOUT_STREAMS_MAX = 5  # per checkout and process


@checkout_route
async def get_events(visit: CheckoutVisit) -> Response:
    """`GET /checkout/{checkout_id}/events`: stream changes until the payment ends.

    The stream closes after at most five minutes. `Last-Event-ID` is the latest version that
    the client has received. It is not sent again. If it is final, the response is 204, which stops
    the browser from reconnecting.
    """
    last_version = _read_last_version(visit.request)
    if visit.payment.status in TERMINAL and visit.payment.version == last_version:
        return Response(status_code=204)
    if visit.request.method == "HEAD":
        return Response(headers=responses.STREAM_HEADERS)
    visit.context.change_feed.require_capacity(visit.payment.id)
    return _CheckoutStream(visit, last_version)


def _read_last_version(request: Request) -> int | None:
    text = request.headers.get("last-event-id", "")
    is_version = text.isascii() and text.isdecimal() and len(text) <= _VERSION_DIGITS_MAX
    return int(text) if is_version else None


class _CheckoutStream(StreamingResponse):
    """A streaming response that is subscribed to payment changes while it is being sent."""

    def __init__(self, visit: CheckoutVisit, last_version: int | None) -> None:
        self._visit = visit
        self._subscriber = ChangeSubscriber()
        super().__init__(
            _stream_events(visit, self._subscriber, last_version), 200, responses.STREAM_HEADERS
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Subscribe here: if the generator never starts, its cleanup does not run.
        with self._visit.context.change_feed.subscribe(self._visit.payment.id, self._subscriber):
            await super().__call__(scope, receive, send)


async def _stream_events(
    visit: CheckoutVisit, subscriber: ChangeSubscriber, version: int | None
) -> AsyncGenerator[bytes]:
    """Yield events until the payment ends, the process stops, or `STREAM_S` has elapsed."""
    yield responses.STREAM_RETRY
    loop, context = asyncio.get_running_loop(), visit.context
    ends_at = loop.time() + responses.STREAM_S
    last_onchain: dict[str, Any] | None = None
    while True:
        subscriber.changed.clear()
        try:
            snapshot = await payment_store.get(context.database, visit.payment.id) or visit.snapshot
            onchain = await _onchain_fields(context, snapshot)
        except (StorageUnavailableError, LockTimeoutError) as error:
            _log.warning("stream_ended", why=type(error).__name__)
            return  # the browser reconnects
        if snapshot.payment.version != version:
            version = snapshot.payment.version
            yield responses.encode_event("status", _status_fields(snapshot), version)
        if onchain is not None and onchain != last_onchain:
            last_onchain = onchain
            yield responses.encode_event("onchain", onchain, snapshot.payment.version)
        if snapshot.payment.status in TERMINAL or context.change_feed.closing:
            return
        while not await _wait_for_change(subscriber):
            if loop.time() >= ends_at:
                return
            yield responses.STREAM_KEEP_ALIVE


async def _wait_for_change(subscriber: ChangeSubscriber) -> bool:
    """Wait for a change; return False if a keep-alive message is due first."""
    with suppress(TimeoutError):
        async with asyncio.timeout(responses.HEARTBEAT_S):
            await subscriber.changed.wait()
    return subscriber.changed.is_set()


def _status_fields(snapshot: PaymentSnapshot) -> dict[str, Any]:
    payment = snapshot.payment
    return {
        "status": payment.status,
        "version": payment.version,
        "server_time": format_timestamp(snapshot.now),
        "expires_at": format_timestamp(payment.expires_at),
    }


async def _onchain_fields(
    context: CheckoutContext, snapshot: PaymentSnapshot
) -> dict[str, Any] | None:
    """Return the current on-chain session's transfers; None if there are no transfers.

    Deposit sessions also have amounts, because their transfers may be partial.
    """
    session = snapshot.session
    if session is None or session.quote.provider not in ON_CHAIN_PROVIDERS:
        return None
    try:
        view = await get_session_view(context.database, session.id, context.wallet_handoff)
    except RefusedError:  # the session has ended
        return None
    transactions = view["transactions"]
    if not transactions:
        return None
    confirmations = view["confirmations"]
    return {
        "session_id": ids.format_id(ids.SESSION, session.id),
        "status": view["status"],
        "tx_hash": transactions[-1]["tx_hash"],
        "step": transactions[-1]["step"],
        "seen": confirmations["seen"],
        "needed": confirmations["needed"],
        "eta_seconds": confirmations["eta_seconds"],
        **{name: view[name] for name in ("received", "pending", "remaining") if name in view},
    }
