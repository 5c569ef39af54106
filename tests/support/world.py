"""The basic test setup: a merchant, its payments, the clock, and an HTTP client."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Self
from uuid import UUID, uuid4

import aiohttp
import asyncpg

from payintent.app import Application, RouteContext
from payintent.core.access import Role
from payintent.db.database import Database
from payintent.gateway_accounts.health import GatewayHealth
from payintent.gateway_accounts.operations import AddAccount
from payintent.gateways.port import SessionReport
from payintent.merchants import methods_store as method_store
from payintent.merchants.model import TaxManager
from payintent.merchants.operations import CreatedMerchant, CreateMerchant
from payintent.operators.operation import Actor, AnyOperation
from payintent.operators.operations import IssueOperatorToken
from payintent.payment_sessions.open_session import SelectedSession
from payintent.payment_sessions.select_quote import QuoteSelection, select_quote
from payintent.payment_sessions.settle import settle_session
from payintent.payments import store as payment_store
from payintent.payments.model import CreatePaymentRequest, Payment
from payintent.payments.store import PaymentSnapshot
from payintent.runtime.id_generator import IdGenerator
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.fakes import FakeGateway

ACTOR = Actor("test", "it is arranged")
ALL_FIAT = ("USD", "THB", "JPY", "TWD", "IDR", "PHP")


#: The fields of a `World` except the service and the gateway, which belong to a process.
ARRANGED = ("merchant_id", "api_key", "callback_secret", "account_id", "card", "transfer")


@dataclass
class World:
    """A merchant with a card method and a transfer method at the fake gateway."""

    service: Service
    gateway: FakeGateway
    merchant_id: int
    api_key: str
    callback_secret: str
    account_id: int
    card: int
    transfer: int
    signing_secret: str = "fake-signing-secret"
    held: list[asyncpg.Connection] = field(default_factory=list)

    @property
    def database(self) -> Database:
        return self.service.database

    @property
    def health(self) -> GatewayHealth:
        return self.service.accounts.health

    @property
    def id_generator(self) -> IdGenerator:
        return self.database.id_generator

    async def perform(self, operation: AnyOperation[Any]) -> Any:
        """Run an operation as an operator."""
        return await self.service.run_operation(operation, ACTOR)

    async def add_merchant(self, name: str = "Other", **more: Any) -> CreatedMerchant:
        """Create another merchant with all methods of the platform's accounts."""
        return await self.perform(CreateMerchant(name=name, **({"methods": "all"} | more)))

    async def add_account(self, base_url: str, **credentials: str) -> int:
        """Add another account at the fake gateway."""
        return (
            await self.perform(
                AddAccount(provider="fake", base_url=base_url, credentials=credentials)
            )
        ).id

    async def operator_token(self, name: str = "ann", role: Role = Role.ADMIN) -> str:
        """Issue an operator's token."""
        return (await self.perform(IssueOperatorToken(name=name, role=role))).token

    def request(self, **changes: Any) -> CreatePaymentRequest:
        """Return a request for a payment of 1590.00 THB that expires after half an hour."""
        values: dict[str, Any] = {
            "currency": "THB",
            "amount": Decimal("1590.00"),
            "amount_text": "1590.00",
            "payer_uid": "buyer-1",
            "payer_email": None,
            "include_pegged_assets": True,
            "metadata": '{"order_id":"A-1"}',
            "tax_manager": TaxManager.NONE,
            "merchant_id": self.merchant_id,
            "key": uuid4(),
            "request_hash": uuid4().bytes,
            "expires_in_s": 1800,
            "country": None,
        }
        return CreatePaymentRequest(**values | changes)

    async def create(self, **changes: Any) -> Payment:
        """Create a payment, by default of 1590.00 THB that expires after half an hour."""
        request = self.request(**changes)
        return (await self.service.payment_creator.create(request)).payment

    async def cancelled(self, **changes: Any) -> Payment:
        """Create a cancelled payment without an event."""
        payment = await self.create(**changes)
        await self.rows(
            "UPDATE payment SET status = 'CANCELLED', cancelled_at = clock() WHERE id = $1",
            payment.id,
        )
        return payment

    async def read(self, payment: Payment) -> PaymentSnapshot:
        """Read a stored payment without changing it."""
        snapshot = await payment_store.get(self.database, payment.id)
        assert snapshot is not None
        return snapshot

    async def status(self, payment: Payment) -> str:
        return (await self.read(payment)).payment.status.value

    async def select(
        self, payment: Payment, method: int | None = None, **more: Any
    ) -> SelectedSession:
        """Select a method, as the buyer's browser does."""
        service = self.service
        checkout_payment = await service.payment_lookup.find_checkout_payment(payment.checkout_id)
        selection = QuoteSelection(payment_method_id=method or self.card, **more)
        restrictions = await service.policies.get_restrictions()
        return await select_quote(
            service.selection_context, checkout_payment, selection, restrictions
        )

    async def report(self, payment: Payment, session_id: UUID, report: SessionReport) -> Payment:
        """Send a gateway's report about a session."""
        async with self.database.transaction() as tx:
            return await settle_session(tx, payment.id, session_id, report)

    async def rows(self, query: str, *args: object) -> list[Any]:
        """Run a query of the test."""
        return await self.database.fetch(query, *args)  # type: ignore[arg-type]

    async def events(self, payment: Payment) -> list[str]:
        rows = await self.rows("SELECT type FROM event WHERE payment_id = $1", payment.id)
        return [row["type"] for row in rows]

    async def cases(self, payment: Payment) -> list[str]:
        rows = await self.rows(
            "SELECT kind FROM money_case WHERE payment_id = $1 ORDER BY id", payment.id
        )
        return [row["kind"] for row in rows]

    async def session(self, session_id: UUID) -> Any:
        [row] = await self.rows("SELECT * FROM session WHERE id = $1", session_id)
        return row

    async def move_clock(self, seconds: float) -> None:
        """Advance the service's clock for all processes."""
        await self.set_clock(
            f"date_trunc('milliseconds', statement_timestamp()) + interval '{seconds} seconds'"
        )

    async def set_clock(self, expression: str) -> None:
        """Make the database's clock return an expression."""
        await self.rows(
            "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql STABLE "
            f"RETURN {expression}"
        )

    async def open_connection(self) -> asyncpg.Connection:
        """Open a separate connection to the database, to stage races."""
        return await asyncpg.connect(self.service.settings.database_url)


async def make_world(service: Service, gateway: FakeGateway) -> World:
    """Create a merchant with two payment methods at the fake gateway."""
    account = AddAccount(
        provider="fake",
        base_url="http://gateway.test",
        credentials={"signing_secret": "fake-signing-secret"},
    )
    account_id = (await service.run_operation(account, ACTOR)).id
    new = await service.run_operation(CreateMerchant(name="Nimbus Books", auto_refund=False), ACTOR)
    ids = []
    async with service.database.transaction() as tx:
        for position, (kind, label) in enumerate((("card", "Card"), ("redirect", "Transfer"))):
            method = method_store.NewPaymentMethod(
                kind=kind, label=label, currencies=ALL_FIAT, fee_rate=Decimal("0.029")
            )
            ids.append(await method_store.add(tx, new.merchant.id, account_id, method, position))
    return World(
        service=service,
        gateway=gateway,
        merchant_id=new.merchant.id,
        api_key=new.api_key,
        callback_secret=new.callback_secret,
        account_id=account_id,
        card=ids[0],
        transfer=ids[1],
    )


@dataclass(frozen=True)
class Answer:
    """A completely read HTTP response."""

    status: int
    body: bytes
    headers: Any

    @property
    def json(self) -> Any:
        return __import__("json").loads(self.body)


class Api:
    """An HTTP client of the service, by default with the merchant's key."""

    def __init__(self, base: str, world: World, app: Application | None = None) -> None:
        self.base = base
        self.world = world
        self._app = app  # if it runs in this process
        self._client = aiohttp.ClientSession()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    @property
    def route_context(self) -> RouteContext:
        """The state of the serving process."""
        assert self._app is not None
        assert self._app.route_context is not None
        return self._app.route_context

    async def send(self, method: str, path: str, **options: Any) -> Answer:
        """Send a request with aiohttp's `json`, `data` and `headers` arguments."""
        options.setdefault("allow_redirects", False)
        async with self._client.request(method, self.base + path, **options) as answer:
            return Answer(answer.status, await answer.read(), answer.headers)

    def bearer(self, key: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key or self.world.api_key}"}

    async def create(self, key: str | None = None, **changes: Any) -> Answer:
        """`POST /payments` of 1590.00 THB. A value of None omits the field."""
        body: dict[str, Any] = {"currency": "THB", "amount": "1590.00", "payer_uid": "buyer-1"}
        body = {name: value for name, value in (body | changes).items() if value is not None}
        headers = self.bearer() | {"Idempotency-Key": key or str(uuid4())}
        return await self.send("POST", "/v1/payments", json=body, headers=headers)

    async def get(self, payment_id: str) -> Answer:
        return await self.send("GET", f"/v1/payments/{payment_id}", headers=self.bearer())


def patient(settings: Settings) -> Settings:
    """Allow requests to wait for locks as long as a slow machine needs."""
    return settings.model_copy(
        update={
            "database_lock_timeout_ms": 30_000,
            "database_statement_timeout_ms": 30_000,
            "database_acquire_timeout_s": 30.0,
        }
    )
