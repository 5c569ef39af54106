"""What an adapter brings to the conformance kit: itself, its counterpart, a buyer and the money.

`<provider>_harness.py` has one class that fills this in, and one async context manager

    @asynccontextmanager
    async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]: ...

and is named in `adapters.py`, its differences in `traits.py`. `fixtures.getfixturevalue` gives
synchronous fixtures of the session or module to whoever needs them. One harness serves many tests,
on one event loop; no test assumes that nothing happened before it, and each that wants other
refunds than DONE sets them back.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import uuid4

from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.port import (
    CallbackRequest,
    Capture,
    FailureReason,
    Gateway,
    GatewayAccount,
    GatewayRefundRequest,
    GatewaySessionRequest,
    SessionCreated,
)
from tests.conformance.faults import FaultProxy
from tests.conformance.receiver import Receiver
from tests.conformance.traits import Scenario, Traits

PATIENT_S = 30.0  # a loaded machine must not look like a silent gateway
HURRIED_S = 0.3
RESPONSE_BYTES_MAX = 1024 * 1024


class RefundOutcome(StrEnum):
    """What a refund comes to at the counterpart."""

    DONE = "done"
    PENDING = "pending"
    DECLINED = "declined"


@dataclass(kw_only=True)
class Harness(Traits, ABC):
    """One adapter before its counterpart; its traits are those that `traits.py` has of it."""

    gateway: Gateway  # over `patient()`
    hurried: Gateway | None  # the same over `hurried()`: only ever asked what is never answered
    account: GatewayAccount  # its base_url is that of `faults`
    other_account: GatewayAccount  # other credentials, known to the counterpart too
    faults: FaultProxy | None  # None: no operation goes over HTTP
    receiver: Receiver  # serves gateway and account
    currency: str
    amount_minor: int  # of a usual order; a third of it can be given back
    kind: str = "card"
    country: str = "TH"
    failures: Mapping[str, FailureReason]  # every documented code, as it is to be read
    unknown_reference: str | None  # well formed, and names no session there; None: it has no names

    public: frozenset[str] = frozenset({"page_url"})  # credentials that anybody may see

    def request(self, **changes: Any) -> GatewaySessionRequest:
        """Order something usual under a fresh id."""
        now = datetime.now(UTC).replace(microsecond=0)
        usual = GatewaySessionRequest(
            session_id=uuid4(),
            amount_minor=self.amount_minor,
            currency=self.currency,
            kind=self.kind,
            country=self.country,
            description="Nimbus Books pay_1",
            opened_at=now,
            expires_at=now + timedelta(minutes=30),
            return_url="https://shop.example/return?x=1",
            callback_url=self.receiver.url,
            locale="en",
            payer_email="buyer@example.com",
        )
        return replace(usual, **changes)

    async def visit(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        """Let the buyer see the page, where the gateway first learns of a session by that."""
        del created, request

    @abstractmethod
    async def pay(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        """Let the buyer pay where `created.next_action` leads; ends when the money is taken."""

    @abstractmethod
    async def decline(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        """Let the buyer try to pay, and be declined."""

    async def cancel(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        """Let the buyer cancel on the page."""
        raise NotImplementedError

    async def pay_otherwise(
        self, created: SessionCreated, request: GatewaySessionRequest, how: Scenario
    ) -> None:
        """Let the buyer pay less, more or late; ends when the money is taken."""
        raise NotImplementedError

    async def go_back(
        self, created: SessionCreated, request: GatewaySessionRequest
    ) -> SessionCreated:
        """Let the buyer leave the page and come back; gives the session to continue with."""
        await self.visit(created, request)
        return created

    async def refund_in_dashboard(self, capture: Capture, amount_minor: int) -> None:
        """Let the merchant refund a part in the gateway's own dashboard."""
        raise NotImplementedError

    def undecided(
        self, created: SessionCreated, request: GatewaySessionRequest
    ) -> AbstractAsyncContextManager[None]:
        """Let answers about the session be authentic, with a state that no document lists."""
        raise NotImplementedError

    @abstractmethod
    async def set_refunds(self, outcome: RefundOutcome) -> None:
        """Say what the refunds of captures made from now on come to; DONE until told otherwise."""

    @abstractmethod
    async def settle_refund(self, request: GatewayRefundRequest, outcome: RefundOutcome) -> None:
        """Decide a pending refund, DONE or DECLINED; ends when an inquiry may know it."""

    @abstractmethod
    async def given_back(self, capture: Capture) -> int:
        """Ask the counterpart how much of a capture has gone back, in our minor units.

        Pending refunds count where the counterpart counts them.
        """

    async def dispute(self, capture: Capture) -> str:
        """Have all of a capture disputed; gives what `win` takes. Only where `disputes`."""
        raise NotImplementedError

    async def win(self, dispute: str) -> None:
        """Let a dispute be decided for the merchant."""
        raise NotImplementedError

    @abstractmethod
    def payload(self, callback: CallbackRequest) -> bytes:
        """Give the facts of a callback without their signature, as `signed` takes them."""

    @abstractmethod
    def signed(self, payload: bytes, account: GatewayAccount) -> CallbackRequest:
        """Send any bytes as the provider would, signed now with this account's secrets.

        Bytes that the format cannot hold are wrapped as nearly as can be. Empty secrets sign too.
        """

    def restated(self, payload: bytes, *, amount: str = "", currency: str = "") -> bytes | None:
        """Put another decimal amount, or another currency, into the facts of money taken.

        None where the traits say that the wire has no room for it.
        """
        del payload, amount, currency
        return None

    @abstractmethod
    def forgeries(self, callback: CallbackRequest) -> Mapping[str, CallbackRequest]:
        """Name ways to meddle with a genuine callback; the adapter must refuse every one.

        At least: no signature, an empty one, a changed one, and one that is too old where it ages.
        """

    @property
    def secrets(self) -> frozenset[str]:
        """Give what no log, text or repr may show; `public` credentials are none."""
        given = {**self.other_account.credentials, **self.account.credentials}
        return frozenset(value for name, value in given.items() if name not in self.public)

    def without_secrets(self) -> GatewayAccount:
        """Give the account with every credential empty."""
        return replace(self.account, credentials=dict.fromkeys(self.account.credentials, ""))


def patient() -> GatewayHttpClient:
    """Make the client that waits for slow machines; the harness closes it."""
    return GatewayHttpClient(timeout_s=PATIENT_S, response_bytes_max=RESPONSE_BYTES_MAX)


def hurried() -> GatewayHttpClient:
    """Make the client that soon gives up; the harness closes it."""
    return GatewayHttpClient(timeout_s=HURRIED_S, response_bytes_max=RESPONSE_BYTES_MAX)
