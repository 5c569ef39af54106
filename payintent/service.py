"""Build a process's `Service`: use cases with their database, gateways and secrets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

from payintent.callbacks.receive import CallbackReceiver
from payintent.checkout.pictures.cache import PictureCache
from payintent.db.availability import COMMAND_WAIT_S, wait_for_database
from payintent.db.database import Database
from payintent.db.notify import EventNotifier
from payintent.db.replica import ReadDatabase
from payintent.evm.refund_sender import RefundSenders, open_refund_senders
from payintent.fraud.policy_cache import PolicyCache
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.packages import load_gateway_packages
from payintent.gateways.port import Gateway
from payintent.gateways.simulator import SimulatorGateway
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.http.egress import EgressRules
from payintent.onchain.deposit_gateway import DepositGateway
from payintent.onchain.gateway import OnchainGateway
from payintent.operations import OPERATIONS
from payintent.operators.operation import Actor, AnyOperation, OperationContext
from payintent.operators.proposals_store import Proposal
from payintent.operators.submit import ShowProgress, run_operation, submit
from payintent.payment_sessions.open_session import SessionOpener
from payintent.payments.create import PaymentCreator
from payintent.payments.lookup import PaymentLookup
from payintent.privacy.keyring_operations import check_encryption_keys
from payintent.quotes.catalog import Catalogs
from payintent.quotes.merchant_cache import MerchantCache
from payintent.refunds.address_links import RefundAddressLinks
from payintent.refunds.create import RefundCreator
from payintent.runtime.encryption import Encryption, load_encryption
from payintent.runtime.settings import Settings
from payintent.runtime.settings_checks import check_addresses
from payintent.test_mode.deposit_gateway import TestDepositGateway
from payintent.test_mode.gateway import TestGateway

if TYPE_CHECKING:
    from payintent.onchain.wallet_sessions import WalletHandoff
    from payintent.onchain.watch_loop import WatchContext
    from payintent.payment_sessions.inquire import SessionInquirer
    from payintent.payment_sessions.select_quote import SelectionContext, ServiceUrls
    from payintent.payments.screen import FraudScreening
    from payintent.reconciliation.runs import ReconciliationContext
    from payintent.refunds.send import RefundSender
    from payintent.test_mode.buyer_simulator import BuyerSimulator
    from payintent.test_mode.trigger_event import EventTrigger


_HTTP_ADAPTERS = (SimulatorGateway, EcpayGateway, StripeGateway, TwoC2pGateway)
#: Provider names that installed gateway packages must not use.
BUILT_IN_PROVIDERS = frozenset(
    adapter.provider
    for adapter in (
        *_HTTP_ADAPTERS,
        OnchainGateway,
        DepositGateway,
        TestGateway,
        TestDepositGateway,
    )
)


R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Service:
    """The use cases and resources of a process, created by `open_service`.

    Cached properties import their modules on first use, so that a command loads only the modules
    that it needs.
    """

    settings: Settings
    database: Database
    read_database: ReadDatabase  # for lists; may be a replica that lags by a few seconds
    encryption: Encryption
    accounts: GatewayAccounts
    payment_creator: PaymentCreator
    payment_lookup: PaymentLookup
    merchants: MerchantCache
    catalogs: Catalogs
    session_opener: SessionOpener
    callback_receiver: CallbackReceiver
    policies: PolicyCache
    http: GatewayHttpClient
    refund_senders: RefundSenders  # for chains with a configured signer
    event_notifier: EventNotifier
    pictures: PictureCache

    @cached_property
    def urls(self) -> "ServiceUrls":
        from payintent.payment_sessions.select_quote import ServiceUrls

        return ServiceUrls(
            api_base=self.settings.api_base,
            checkout_base=self.settings.checkout_base,
            pages_base=self.settings.pages_base,
        )

    @cached_property
    def selection_context(self) -> "SelectionContext":
        from payintent.payment_sessions.select_quote import SelectionContext

        return SelectionContext(
            database=self.database,
            merchants=self.merchants,
            accounts=self.accounts,
            opener=self.session_opener,
            urls=self.urls,
        )

    @cached_property
    def buyer_simulator(self) -> "BuyerSimulator":
        from payintent.test_mode.buyer_simulator import BuyerSimulator

        return BuyerSimulator(
            selection=self.selection_context,
            policies=self.policies,
            receiver=self.callback_receiver,
        )

    @cached_property
    def event_trigger(self) -> "EventTrigger":
        from payintent.test_mode.trigger_event import EventTrigger

        return EventTrigger(
            database=self.database,
            merchants=self.merchants,
            screening=self.fraud_screening,
            lookup=self.payment_lookup,
            simulator=self.buyer_simulator,
        )

    @cached_property
    def fraud_screening(self) -> "FraudScreening":
        from payintent.payments.screen import FraudScreening

        return FraudScreening(
            database=self.database,
            policies=self.policies,
            encryption=self.encryption,
            creator=self.payment_creator,
        )

    @cached_property
    def operation_context(self) -> OperationContext:
        return OperationContext(
            database=self.database,
            read_database=self.read_database,
            encryption=self.encryption,
            settings=self.settings,
            gateways=self.accounts.gateways,
            operations=OPERATIONS,
        )

    async def submit(
        self,
        operation: AnyOperation[R],
        actor: Actor,
        show_progress: ShowProgress | None = None,
    ) -> R | Proposal:
        """Run an operation, or store a proposal if it needs another operator's approval."""
        return await submit(self.operation_context, operation, actor, show_progress)

    async def run_operation(self, operation: AnyOperation[R], actor: Actor) -> R:
        """Run an operation. Raises `CONFLICT` if it needs approval."""
        return await run_operation(self.operation_context, operation, actor)

    @cached_property
    def refund_address_links(self) -> RefundAddressLinks:
        return RefundAddressLinks(self.encryption, self.settings.checkout_base)

    @cached_property
    def wallet_handoff(self) -> "WalletHandoff":
        from payintent.onchain.wallet_sessions import WalletHandoff

        return WalletHandoff(self.encryption, self.settings.checkout_base)

    @cached_property
    def session_inquirer(self) -> "SessionInquirer":
        from payintent.payment_sessions.inquire import SessionInquirer

        return SessionInquirer(
            database=self.database,
            accounts=self.accounts,
            authorisation_timeout=timedelta(hours=self.settings.authorising_patience_hours),
        )

    @cached_property
    def refund_creator(self) -> RefundCreator:
        return RefundCreator(database=self.database, accounts=self.accounts)

    @cached_property
    def refund_sender(self) -> "RefundSender":
        from payintent.refunds.send import RefundSender

        return RefundSender(
            database=self.database, accounts=self.accounts, api_base=self.settings.api_base
        )

    @cached_property
    def reconciliation_context(self) -> "ReconciliationContext":
        from payintent.reconciliation.runs import ReconciliationContext

        return ReconciliationContext(
            database=self.database, capabilities=self.accounts.capabilities
        )

    @cached_property
    def watch_context(self) -> "WatchContext":
        from payintent.onchain.watch_loop import WatchContext

        return WatchContext(settings=self.settings, database=self.database)

    async def close(self) -> None:
        try:
            await self.accounts.log.flush()
        finally:
            for resource in (
                *(self.event_notifier, self.http, self.pictures, self.refund_senders),
                *(self.payment_creator, self.payment_lookup, self.merchants),
                *(self.session_opener, self.callback_receiver, self.read_database, self.database),
            ):
                await resource.close()


async def open_database(
    settings: Settings,
    encryption: Encryption,
    process: str,
    wait_s: float | None,
    on_delay: Callable[[], None] | None = None,
) -> Database:
    """Connect to the database, waiting for it if necessary.

    Raises `EncryptionKeyError` if our secrets do not match the database.
    """
    database = Database(settings, process)
    await wait_for_database(database.open, wait_s, on_delay)
    try:
        await check_encryption_keys(database, encryption)
    except BaseException:
        await database.close()
        raise
    return database


def _make_adapters(
    database: Database,
    settings: Settings,
    http: GatewayHttpClient,
    refund_senders: RefundSenders,
) -> dict[str, Gateway]:
    onchain = OnchainGateway(database, settings.api_base, refund_senders)
    deposits = DepositGateway(database, settings.api_base, refund_senders)
    http_adapters = {adapter.provider: adapter(http) for adapter in _HTTP_ADAPTERS}
    return {**http_adapters, onchain.provider: onchain, deposits.provider: deposits}


def _make_test_adapters(database: Database, settings: Settings) -> dict[str, Gateway]:
    return {
        TestGateway.provider: TestGateway(database, settings.pages_base),
        TestDepositGateway.provider: TestDepositGateway(database, settings.api_base),
    }


async def open_service(
    settings: Settings,
    gateways: Mapping[str, Gateway] | None = None,
    process: str = "payintent",
    wait_s: float | None = COMMAND_WAIT_S,
    on_delay: Callable[[], None] | None = None,
) -> Service:
    """Open a service, waiting up to `wait_s` for the database; None waits without limit.

    `gateways`, keyed by provider, replaces all adapters except the test-mode adapters.
    `process` labels the database connections. `on_delay` is called if the database does not respond
    promptly. Raises `UnusableAddressError` or `GatewayPackageError` before connecting, and
    `EncryptionKeyError` if the secrets do not match the database.
    """
    check_addresses(settings)
    encryption = load_encryption(settings)
    http = GatewayHttpClient(
        settings.gateway_timeout_s, settings.gateway_answer_bytes_max, settings.client_tls
    )
    packages = load_gateway_packages(http, BUILT_IN_PROVIDERS) if gateways is None else {}
    database = await open_database(settings, encryption, process, wait_s, on_delay)
    senders = open_refund_senders(settings.signers, settings.endpoints, tls=settings.client_tls)
    if gateways is None:
        gateways = _make_adapters(database, settings, http, senders) | packages
    adapters = {**_make_test_adapters(database, settings), **gateways}
    event_notifier = EventNotifier(settings.direct_url)
    database.on_event = event_notifier.notify
    picture_rules = EgressRules(sandbox=settings.sandbox)  # excludes `webhook_networks`
    accounts = GatewayAccounts(database, encryption, adapters, settings.buyer_calls)
    merchants = MerchantCache(database, accounts)
    policies = PolicyCache(database, settings.policy_cache_s)
    return Service(
        settings=settings,
        database=database,
        read_database=ReadDatabase(database, settings),
        encryption=encryption,
        accounts=accounts,
        payment_creator=PaymentCreator(database),
        payment_lookup=PaymentLookup(database),
        merchants=merchants,
        catalogs=Catalogs(database, merchants, policies),
        policies=policies,
        session_opener=SessionOpener(database),
        callback_receiver=CallbackReceiver(database),
        http=http,
        refund_senders=senders,
        event_notifier=event_notifier,
        pictures=PictureCache(encryption, picture_rules, settings.client_tls),
    )


def count_connections_max(settings: Settings, processes: int) -> int:
    """Return the maximum number of connections that `api` and `worker` can open together.

    Each command runs `processes` processes. In addition to its share of the pool, each process
    uses a connection to listen for events and a connection to send notifications. An API process
    also uses a connection for `/readyz`. A worker process also uses two connections for
    reconciliation locks, and one connection per watched chain for the chain's lock.
    """
    share = settings.count_connections_per_process(processes)
    return processes * (share + 3 + share + 4 + len(settings.endpoints))


open_api_service = partial(open_service, process="payintent-api", wait_s=None)
open_worker_service = partial(open_service, process="payintent-worker", wait_s=None)
