"""The effects of chain operations on watched chains and offered tokens."""

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from payintent.chains import watch_store as chain_watch_store
from payintent.chains.operations import (
    AddContract,
    ChainView,
    ListChains,
    ResumeChain,
    RetireContract,
    SetToken,
)
from payintent.core.errors import ErrorCode, RefusedError
from payintent.evm.abi import to_hex
from payintent.merchants.methods_operations import AddPaymentMethod, ChangePaymentMethod
from payintent.onchain.operations import SetChain
from payintent.operators.operation import to_json_value
from payintent.runtime.settings import Settings
from payintent.service import Service
from tests.support.contracts import (
    CONTRACT,
    RECEIVER,
    USDT,
    bill,
    contract_service,
    log_of,
    offer_tokens,
    record_final_logs,
)
from tests.support.fakes import FakeGateway
from tests.support.world import World

_SECOND_CONTRACT = f"0x{40 * '7'}"


@pytest.fixture
async def service(settings: Settings, gateway: FakeGateway) -> AsyncIterator[Service]:
    async with contract_service(settings, gateway) as service:
        yield service


async def _chain(world: World, slug: str) -> ChainView:
    [chain] = [item for item in await world.perform(ListChains()) if item.slug == slug]
    return chain


async def _add(world: World, block: int, address: str = CONTRACT, chain: str = "bsc") -> int:
    new = AddContract(chain=chain, address=address, receiver=RECEIVER, deployed_block=block)
    return (await world.perform(new)).account_id


async def test_a_chain_is_read_from_the_deployment_block_of_its_first_contract(
    world: World,
) -> None:
    assert (await _chain(world, "bsc")).block is None
    await _add(world, 500)
    assert (await _chain(world, "bsc")).block == 499
    await _add(world, 900, _SECOND_CONTRACT)
    assert (await _chain(world, "bsc")).block == 499
    await world.rows("UPDATE chain_cursor SET block = 950, hash = $1, at = clock()", bytes(32))
    await _add(world, 700, f"0x{40 * '8'}")
    # earlier payments to the new contract must be read too
    assert (await _chain(world, "bsc")).block == 699
    [cursor] = await world.rows("SELECT hash, at FROM chain_cursor")
    assert (cursor["hash"], cursor["at"]) == (None, None)


async def test_a_contract_can_be_registered_once_per_chain(world: World) -> None:
    await _add(world, 1)
    with pytest.raises(RefusedError, match="is already registered") as refused:
        await _add(world, 2)
    assert refused.value.code is ErrorCode.CONFLICT
    await _add(world, 1, chain="ethereum")  # the same address can exist on several chains


async def test_a_retired_contract_is_not_offered_but_still_watched(world: World) -> None:
    methods = await offer_tokens(world)
    payment, session = await bill(world, methods["NATIVED"])
    retired = await world.perform(RetireContract(account_id=session.quote.account_id))
    assert not retired.current
    [contract] = (await _chain(world, "native")).contracts
    assert (contract.account_id, contract.current) == (session.quote.account_id, False)
    with pytest.raises(RefusedError) as refused:
        await bill(world, methods["NATIVED"])
    assert refused.value.code is ErrorCode.PG_NOT_AVAILABLE
    await record_final_logs(world, log_of(session))
    assert await world.status(payment) == "PAID"


async def test_a_merchants_own_contract_cannot_be_used_by_another_merchant(world: World) -> None:
    owner_id = (await world.add_merchant()).merchant.id
    contract = await world.perform(
        AddContract(
            chain="bsc",
            address=CONTRACT,
            receiver=RECEIVER,
            deployed_block=1,
            merchant_id=owner_id,
        )
    )
    assert (contract.merchant_id, to_json_value(contract)["address"]) == (
        owner_id,
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    )
    assert [item.merchant_id for item in (await _chain(world, "bsc")).contracts] == [owner_id]
    method = {"account_id": contract.account_id, "kind": "onchain", "label": "USDT"}
    token = {"currencies": ["USDT"], "token": "USDT"}
    with pytest.raises(RefusedError, match="this merchant has no account"):
        await world.perform(AddPaymentMethod(merchant_id=world.merchant_id, **method, **token))
    await world.perform(AddPaymentMethod(merchant_id=owner_id, **method, **token))
    with pytest.raises(RefusedError, match="kind onchain requires a contract account"):
        await world.perform(
            AddPaymentMethod(merchant_id=owner_id, **(method | {"kind": "card"}), **token)
        )


@pytest.mark.parametrize("currencies", [["JPY"], ["USDT", "USD"], ["NATIVED"]])
async def test_a_method_on_a_chain_accepts_only_its_token(
    world: World, currencies: list[str]
) -> None:
    """Otherwise a payment of 1590 JPY would cost the buyer 1590 USDT."""
    method_id = (await offer_tokens(world))["USDT"]
    with pytest.raises(RefusedError, match="currencies must be USDT"):
        await world.perform(ChangePaymentMethod(method_id=method_id, currencies=currencies))
    change = ChangePaymentMethod(method_id=method_id, currencies=["USDT"], label="Tether")
    assert (await world.perform(change)).label == "Tether"


async def test_omitted_fields_of_a_token_or_chain_are_unchanged(world: World) -> None:
    before = await world.perform(SetToken(chain="native", symbol="USDT", address=USDT, minimum=7))
    after = await world.perform(SetToken(chain="native", symbol="USDT", enabled=False))
    assert (after.address, after.minimum, after.enabled) == (before.address, 7, False)
    await world.perform(SetChain(chain="native", finality="confirmations", confirmations=9))
    urls = ["https://rpc.example.com"]
    chain = await world.perform(SetChain(chain="native", public_rpc_urls=urls))
    assert (chain.confirmations, chain.public_rpc_urls) == (9, urls)
    cleared = await world.perform(SetChain(chain="native", public_rpc_urls=[]))
    assert (cleared.confirmations, cleared.public_rpc_urls) == (9, [])


async def test_two_tokens_of_a_chain_cannot_have_the_same_address(world: World) -> None:
    tokens = (await _chain(world, "ethereum")).tokens
    [usdt] = [to_hex(item.address) for item in tokens if item.symbol == "USDT" and item.address]
    with pytest.raises(RefusedError, match=f"{usdt} is the address of USDT"):
        await world.perform(SetToken(chain="ethereum", symbol="USDC", address=usdt))
    await world.perform(SetToken(chain="ethereum", symbol="USDT", address=usdt))


async def test_public_rpc_urls_can_be_set_before_finality(world: World) -> None:
    urls = ["https://rpc.example.com"]
    chain = await world.perform(SetChain(chain="native", public_rpc_urls=urls))
    assert (chain.public_rpc_urls, chain.confirmations) == (urls, None)


async def test_a_new_refunder_becomes_current_and_earlier_refunders_stay_listed(
    world: World,
) -> None:
    first, second = b"\x01" * 20, b"\x02" * 20
    for refunder in (first, second):
        chain = await world.perform(SetChain(chain="native", refunder=to_hex(refunder)))
    assert (chain.refunders, chain.refund_approval_above) == ([first, second], 1000)
    chain = await world.perform(SetChain(chain="native", refunder=to_hex(first)))
    assert chain.refunders == [second, first]
    chain = await world.perform(SetChain(chain="native", refund_approval_above="0.5"))
    assert (chain.refunders, chain.refund_approval_above) == ([second, first], Decimal("0.5"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"refunder": "0x12"}, "refunder: an address must be 0x followed by 40 hex digits"),
        ({"refunder": "0x" + 40 * "0"}, "refunder must not be the zero address"),
        ({"refund_approval_above": "-1"}, "refund_approval_above must be a number of tokens"),
        ({"refund_approval_above": "1e3"}, "refund_approval_above must be a number of tokens"),
        ({"refund_approval_above": "NaN"}, "refund_approval_above must be a number of tokens"),
    ],
)
async def test_an_invalid_refunder_or_threshold_is_rejected(
    world: World, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        await world.perform(SetChain(chain="native", **changes))
    assert refused.value.code is ErrorCode.BAD_REQUEST
    assert message in refused.value.message


async def test_a_halted_chain_offers_no_methods_until_it_is_resumed(world: World) -> None:
    methods = await offer_tokens(world)
    await world.rows("UPDATE chain_cursor SET block = 90, halted = 'block 90 has changed'")
    assert (await _chain(world, "native")).halted == "block 90 has changed"
    with pytest.raises(RefusedError) as refused:
        await bill(world, methods["NATIVED"])
    assert refused.value.code is ErrorCode.PG_NOT_AVAILABLE
    resumed = await world.perform(ResumeChain(chain="native", block=80))
    assert (resumed.block, resumed.halted) == (80, None)
    await chain_watch_store.mark_watched(world.database, "native", 80, 60)
    await bill(world, methods["NATIVED"])
    await world.rows("UPDATE chain_cursor SET halted = 'again'")
    assert (await world.perform(ResumeChain(chain="native"))).block == 80
