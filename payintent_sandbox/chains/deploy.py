"""Deploy our contracts and tokens on a development chain, and fund a buyer."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

from payintent_sandbox.chains.contracts import (
    DEPOSIT_FACTORY,
    DEPOSIT_FORWARDER,
    GATEWAY,
    PLAIN_TOKEN,
    USDT_LIKE_TOKEN,
    load,
)
from payintent_sandbox.chains.rpc import DevChainError, DevChainRpc

NATIVE = "0x" + 40 * "0"
COIN_DECIMALS = 18
FUNDED_UNITS = 1_000_000  # in whole tokens and whole coins
_ALLOWANCE_MAX = 2**256 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedToken:
    """A token that the contract accepts. Its minimum is in its smallest unit."""

    symbol: str
    address: str
    decimals: int
    approve_zero_first: bool
    minimum: int

    @property
    def native(self) -> bool:
        """Whether it is the chain's native coin."""
        return self.address == NATIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainPlan:
    """The chain that a development chain imitates. Tokens without an address are deployed."""

    slug: str
    network_id: int
    tokens: tuple[PlannedToken, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The deployed contracts, with addresses in lower case."""

    network_id: int
    genesis_hash: str
    contract_address: str
    deployed_block: int
    receiver: str
    refunder: str  # an unlocked account with money and allowances, for refunds
    sweeper: str  # an unlocked account with coins
    forwarder_address: str
    factory_address: str
    tokens: tuple[PlannedToken, ...]

    def token(self, symbol: str) -> PlannedToken:
        """Find a token by its symbol."""
        [match] = [token for token in self.tokens if token.symbol == symbol]
        return match


@dataclass(frozen=True, slots=True)
class ChainBuyer:
    """A test account and its key. The account is not one of anvil's unlocked accounts."""

    address: str
    private_key: str = field(repr=False)

    @classmethod
    def make(cls) -> Self:
        """Create a buyer with a new key."""
        from eth_account import Account  # imported on use, because it takes a second

        account = Account.create()
        return cls(account.address.lower(), account.key.to_0x_hex())


def _token(
    symbol: str, decimals: int, *, zero_first: bool = False, coin: bool = False
) -> PlannedToken:
    return PlannedToken(
        symbol=symbol,
        address=NATIVE if coin else "",
        decimals=decimals,
        approve_zero_first=zero_first,
        minimum=10 ** (decimals - 2),  # a hundredth of a token
    )


PLANS = {
    plan.slug: plan
    for plan in (
        ChainPlan(
            slug="ethereum",
            network_id=1,
            tokens=(_token("USDT", 6, zero_first=True), _token("USDC", 6)),
        ),
        ChainPlan(slug="bsc", network_id=56, tokens=(_token("USDT", 18), _token("USDC", 18))),
        ChainPlan(
            slug="native",
            network_id=612_055,
            tokens=(_token("USDT", 18), _token("NATIVED", COIN_DECIMALS, coin=True)),
        ),
    )
}


async def deploy(chain: DevChainRpc, plan: ChainPlan) -> Deployment:
    """Deploy the tokens and the contract; fund the refunder. Raises `DevChainError`."""
    deployer, receiver, refunder, sweeper, *_ = await chain.ask("eth_accounts")
    network_id = await chain.number("eth_chainId")
    if network_id != plan.network_id:
        raise DevChainError(f"{chain.url} is chain {network_id}, not {plan.network_id}")
    tokens = tuple([await _deploy_token(chain, deployer, token) for token in plan.tokens])
    address, block = await create_contract(
        chain,
        deployer,
        GATEWAY,
        receiver,
        [token.address for token in tokens],
        [token.minimum for token in tokens],
    )
    forwarder, _ = await create_contract(chain, deployer, DEPOSIT_FORWARDER, receiver)
    factory, _ = await create_contract(chain, deployer, DEPOSIT_FACTORY, forwarder)
    deployment = Deployment(
        network_id=network_id,
        genesis_hash=await genesis_hash(chain),
        contract_address=address,
        deployed_block=block,
        receiver=receiver,
        refunder=refunder,
        sweeper=sweeper,
        forwarder_address=forwarder,
        factory_address=factory,
        tokens=tokens,
    )
    await fund(chain, deployment, refunder)
    await _allow(chain, deployment, refunder)
    return deployment


async def is_deployed(chain: DevChainRpc, deployment: Deployment) -> bool:
    """Return whether a deployment is still on the chain.

    A chain that was killed can lack its last blocks.
    """
    if await chain.number("eth_chainId") != deployment.network_id:
        return False
    if await genesis_hash(chain) != deployment.genesis_hash:
        return False
    code = await chain.ask("eth_getCode", deployment.contract_address, "latest")
    addresses = [token.address for token in deployment.tokens if not token.native]
    addresses += [deployment.forwarder_address, deployment.factory_address]
    codes = [await chain.ask("eth_getCode", address, "latest") for address in addresses]
    return code.startswith(load(GATEWAY).runtime_bytecode) and "0x" not in codes


async def genesis_hash(chain: DevChainRpc) -> str:
    """Return the hash of block 0. It depends on the second in which the chain was created."""
    return (await chain.ask("eth_getBlockByNumber", "0x0", False))["hash"]


async def fund(
    chain: DevChainRpc,
    deployment: Deployment,
    address: str,
    units: int = FUNDED_UNITS,
    symbol: str | None = None,
) -> None:
    """Send an account `units` coins and `units` of each token, or only `units` of `symbol`."""
    faucet = (await chain.ask("eth_accounts"))[0]
    if symbol is None:
        await chain.send(faucet, address, value=units * 10**COIN_DECIMALS)
    contract = load(PLAIN_TOKEN)  # both kinds of token have `mint`
    for token in deployment.tokens:
        if not token.native and symbol in {None, token.symbol}:
            data = contract.call_data("mint", address, units * 10**token.decimals)
            await chain.send(faucet, token.address, data)


def describe(url: str, deployment: Deployment, buyer: ChainBuyer) -> dict[str, Any]:
    """Describe a chain for testers: its part of `dev.json`."""
    return {
        "network_id": deployment.network_id,
        "rpc_url": url,
        "contract_address": deployment.contract_address,
        "tokens": {
            token.symbol: {
                "address": None if token.native else token.address,
                "decimals": token.decimals,
            }
            for token in deployment.tokens
        },
        "buyer": {"address": buyer.address, "private_key": buyer.private_key},
    }


async def _deploy_token(chain: DevChainRpc, deployer: str, token: PlannedToken) -> PlannedToken:
    if token.native:
        return token
    contract = USDT_LIKE_TOKEN if token.approve_zero_first else PLAIN_TOKEN
    named = (f"Development {token.symbol}", token.symbol, token.decimals)
    address, _ = await create_contract(chain, deployer, contract, *named)
    return replace(token, address=address)


async def create_contract(
    chain: DevChainRpc, deployer: str, name: str, *arguments: Any
) -> tuple[str, int]:
    """Deploy a contract; return its address and its block."""
    receipt = await chain.send(deployer, None, load(name).creation_code(*arguments))
    return receipt["contractAddress"], int(receipt["blockNumber"], 16)


async def _allow(chain: DevChainRpc, deployment: Deployment, owner: str) -> None:
    """Allow the contract to spend an account's tokens."""
    data = load(PLAIN_TOKEN).call_data("approve", deployment.contract_address, _ALLOWANCE_MAX)
    for token in deployment.tokens:
        if not token.native:
            await chain.send(owner, token.address, data)
