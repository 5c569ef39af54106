"""The operation that adds a deposit factory."""

from typing import Annotated, ClassVar

from payintent.chains import store as chain_store
from payintent.chains.checks import CheckResult, check_factory
from payintent.chains.operations import AddContract, check_deployed_code, parse_checksum_address
from payintent.chains.store import DEPOSIT_PROVIDER, ChainRecord
from payintent.core.errors import UnprocessableError
from payintent.db.database import Executor
from payintent.evm.chain_reader import RpcChainReader
from payintent.operators.fields import option
from payintent.operators.operation import OperationContext


class AddFactory(AddContract, frozen=True, kw_only=True):
    """Accept payments to addresses that a deployed deposit factory derives."""

    action: ClassVar[str] = "chain.add-factory"
    provider: ClassVar[str] = DEPOSIT_PROVIDER
    forwarder: Annotated[str, option("The forwarder address stored in the factory.")]

    async def changes(self, context: OperationContext) -> list[str]:
        owner = "the platform" if self.merchant_id is None else f"merchant {self.merchant_id}"
        return [
            f"payments to {owner} on {self.chain} use addresses derived by factory {self.address}",
            f"the factory's forwarder {self.forwarder} sends them to {self.receiver}",
        ]

    async def check(self, context: OperationContext) -> None:
        self._parse_forwarder()
        await super().check(context)
        await self._choose_refund_account(context.database)

    async def _check_code(
        self, context: OperationContext, chain: ChainRecord, address: bytes, receiver: bytes
    ) -> None:
        forwarder = self._parse_forwarder()

        async def check(reader: RpcChainReader, name: str) -> CheckResult:
            return await check_factory(reader, name, address, forwarder, receiver)

        await check_deployed_code(context, chain, check)

    def _parse_forwarder(self) -> bytes:
        return parse_checksum_address("forwarder", self.forwarder)

    async def _choose_refund_account(self, database: Executor) -> int:
        """Return the account of the platform's contract; raise `UNPROCESSABLE` if there is none."""
        contract = await chain_store.get_offered_contract(database, self.chain)
        if contract is None:
            raise UnprocessableError(
                f"add a payment contract on {self.chain} first; deposit refunds are paid from it"
            )
        return contract.account_id
