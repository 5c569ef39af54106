"""Cache merchants and their payment methods until the configuration changes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from payintent.db.batcher import Batcher
from payintent.db.database import Database
from payintent.gateway_accounts.accounts import GatewayAccounts
from payintent.merchants import methods_store as method_store
from payintent.merchants import store as merchant_store
from payintent.merchants.methods_store import ConfigurationVersion
from payintent.merchants.model import Merchant, PaymentMethod, UnavailablePart, accepts_payments
from payintent.merchants.payable import (
    PayableMethods,
    apply_capabilities,
    find_payable_methods,
    make_unavailable,
)
from payintent.merchants.taxes import list_tax_rates

_CACHE_SIZE = 1_000  # merchants, about 10 KiB each


@dataclass(frozen=True, slots=True, eq=False)
class MerchantSetup:
    """A merchant, its methods and the tax rates, at one configuration version."""

    version: ConfigurationVersion
    merchant: Merchant
    methods: tuple[PaymentMethod, ...]  # including disabled methods
    payable_methods: PayableMethods  # empty if the merchant does not accept payments
    tax_rates: Mapping[str, Decimal]

    def get_methods_during_outage(self, account_ids: Collection[int]) -> list[PaymentMethod]:
        """Return all methods; the methods of the given accounts are marked as unavailable."""
        return [
            make_unavailable(method, UnavailablePart.OUTAGE)
            if method.account_id in account_ids
            else method
            for method in self.methods
        ]

    def get_payable_methods(self, account_ids: Collection[int]) -> PayableMethods:
        if not account_ids or not accepts_payments(self.merchant.activation):
            return self.payable_methods
        return find_payable_methods(
            self.merchant.market, self.get_methods_during_outage(account_ids)
        )


class MerchantCache:
    """Caches merchants until the configuration version changes.

    Every call reads the current version, in a statement shared by concurrent calls. The merchant is
    re-read only if the version has changed.
    """

    def __init__(self, database: Database, accounts: GatewayAccounts) -> None:
        self._database = database
        self._accounts = accounts
        self._versions: Batcher[None, ConfigurationVersion] = Batcher(
            process_batch=partial(method_store.get_versions, database),
        )
        self._setups: dict[int, MerchantSetup] = {}

    async def get(self, merchant_id: int) -> MerchantSetup:
        """Return a merchant's setup, at least as recent as the start of this call."""
        version = await self._versions.run(None)
        setup = self._setups.get(merchant_id)
        if setup is None or setup.version != version:
            setup = await self._read(merchant_id, version)
            if len(self._setups) >= _CACHE_SIZE:
                self._setups.clear()
            self._setups[merchant_id] = setup
        return setup

    async def close(self) -> None:
        await self._versions.close()

    async def _read(self, merchant_id: int, version: ConfigurationVersion) -> MerchantSetup:
        """Read the current setup. If it is newer than `version`, the next call re-reads it."""
        merchant = await merchant_store.get(self._database, merchant_id)
        assert merchant is not None  # noqa: S101 - merchants are never deleted
        methods = tuple(
            apply_capabilities(method, self._accounts.capabilities(method.provider))
            for method in await method_store.list_for_merchant(
                self._database, merchant_id, version.watched_chains
            )
        )
        usable_methods = methods if accepts_payments(merchant.activation) else ()
        return MerchantSetup(
            version=version,
            merchant=merchant,
            methods=methods,
            payable_methods=find_payable_methods(merchant.market, usable_methods),
            tax_rates=await list_tax_rates(self._database),
        )
