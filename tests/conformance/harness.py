"""The interface between adapters and the conformance kit: adapter, counterpart, buyer, payments.

`<provider>_harness.py` has a class that implements this interface, and an async context manager

    @asynccontextmanager
    async def open_harness(fixtures: pytest.FixtureRequest) -> AsyncGenerator[Harness]: ...

`adapters.py` lists the module, and `traits.py` the adapter's differences. A harness can get
synchronous fixtures of the session or module with `fixtures.getfixturevalue`. Many tests share a
harness and an event loop, so a test must not assume a clean state. A test that changes the outcome
of refunds must restore DONE.
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

PATIENT_S = 30.0  # a loaded machine must not look like an unresponsive gateway
HURRIED_S = 0.3
RESPONSE_BYTES_MAX = 1024 * 1024


class RefundOutcome(StrEnum):
    """The outcome of a refund at the counterpart."""

    DONE = "done"
    PENDING = "pending"
    DECLINED = "declined"


@dataclass(kw_only=True)
class Harness(Traits, ABC):
    """An adapter with its counterpart and its traits from `traits.py`."""

    gateway: Gateway  # uses the client from `patient()`
    hurried: Gateway | None  # uses `hurried()`; only for requests without a response
    account: GatewayAccount  # its base_url is the URL of `faults`
    other_account: GatewayAccount  # with different credentials that the counterpart knows
    faults: FaultProxy | None  # None if no operation uses HTTP
    receiver: Receiver  # serves gateway and account
    currency: str
    amount_minor: int  # of a normal order; a third of it can be refunded
    kind: str = "card"
    country: str = "TH"
    failures: Mapping[str, FailureReason]  # the expected reason of every documented code
    #: A well-formed reference whose session is reported as ABSENT. None if the gateway never
    #: forgets a session, so that an unknown reference belongs to another account.
    unknown_reference: str | None

    public: frozenset[str] = frozenset({"page_url"})  # credentials that may be public

    def request(self, **changes: Any) -> GatewaySessionRequest:
        """Return a normal session request with a new id."""
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
        """Open the page as the buyer, if the gateway creates the session only then."""
        del created, request

    @abstractmethod
    async def pay(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        """Pay as the buyer at `created.next_action`, and wait for the capture."""

    @abstractmethod
    async def decline(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        """Try to pay as the buyer; the attempt is declined."""

    async def cancel(self, created: SessionCreated, request: GatewaySessionRequest) -> None:
        """Cancel on the page as the buyer."""
        raise NotImplementedError

    async def pay_otherwise(
        self, created: SessionCreated, request: GatewaySessionRequest, how: Scenario
    ) -> None:
        """Pay less, more or late as the buyer, and wait for the capture."""
        raise NotImplementedError

    async def go_back(
        self, created: SessionCreated, request: GatewaySessionRequest
    ) -> SessionCreated:
        """Leave the page as the buyer and come back; return the session to continue."""
        await self.visit(created, request)
        return created

    async def refund_in_dashboard(self, capture: Capture, amount_minor: int) -> None:
        """Refund part of a capture in the gateway's dashboard, as the merchant."""
        raise NotImplementedError

    def undecided(
        self, created: SessionCreated, request: GatewaySessionRequest
    ) -> AbstractAsyncContextManager[None]:
        """Make the counterpart return authentic responses with an undocumented session state."""
        raise NotImplementedError

    @abstractmethod
    async def set_refunds(self, outcome: RefundOutcome) -> None:
        """Set the outcome of refunds of future captures. The default is DONE."""

    @abstractmethod
    async def settle_refund(self, request: GatewayRefundRequest, outcome: RefundOutcome) -> None:
        """Decide a pending refund as DONE or DECLINED, and wait until inquiries can return it."""

    @abstractmethod
    async def get_refunded_minor(self, capture: Capture) -> int:
        """Return the refunded amount of a capture at the counterpart, in our minor units.

        Pending refunds are included if the counterpart includes them.
        """

    async def dispute(self, capture: Capture) -> str:
        """Dispute a full capture; return the argument for `win`. Requires `disputes`."""
        raise NotImplementedError

    async def win(self, dispute: str) -> None:
        """Decide a dispute in the merchant's favour."""
        raise NotImplementedError

    @abstractmethod
    def payload(self, callback: CallbackRequest) -> bytes:
        """Return a callback's unsigned content, as an argument for `signed`."""

    @abstractmethod
    def signed(self, payload: bytes, account: GatewayAccount) -> CallbackRequest:
        """Return a callback with any bytes, signed now with this account's secrets.

        If the format cannot contain the bytes, they are wrapped in the closest valid form. Empty
        secrets are also accepted.
        """

    def restate(self, payload: bytes, *, amount: str = "", currency: str = "") -> bytes | None:
        """Replace the decimal amount or the currency of a capture in a callback's content.

        Return None if the format cannot contain it according to the traits.
        """
        del payload, amount, currency
        return None

    @abstractmethod
    def forgeries(self, callback: CallbackRequest) -> Mapping[str, CallbackRequest]:
        """Return forgeries of a genuine callback by name. The adapter must reject all of them.

        They include a missing, an empty and a changed signature, and an expired signature if
        signatures expire.
        """

    @property
    def secrets(self) -> frozenset[str]:
        """Return the values that no log, message or repr may contain; excludes `public` values."""
        credentials = {**self.other_account.credentials, **self.account.credentials}
        return frozenset(value for name, value in credentials.items() if name not in self.public)

    def without_secrets(self) -> GatewayAccount:
        """Return the account with every credential empty."""
        return replace(self.account, credentials=dict.fromkeys(self.account.credentials, ""))


def patient() -> GatewayHttpClient:
    """Create a client that waits for slow machines. The harness closes it."""
    return GatewayHttpClient(timeout_s=PATIENT_S, response_bytes_max=RESPONSE_BYTES_MAX)


def hurried() -> GatewayHttpClient:
    """Create a client with a short timeout. The harness closes it."""
    return GatewayHttpClient(timeout_s=HURRIED_S, response_bytes_max=RESPONSE_BYTES_MAX)
