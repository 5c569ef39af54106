"""Whether refunds can be sent on a chain: its signer, and the refund sender's funds."""

from collections.abc import AsyncGenerator, Sequence

from payintent.domain.errors import ChainUnavailableError
from payintent.evm.abi import encode_allowance, encode_balance_of, to_uint
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.keccak import to_checksum_address
from payintent.evm.signer import ExternalSigner
from payintent.onchain.chain_checks import CheckResult, read_contract_word
from payintent.storage.onchain.chains import ChainRecord, DeployedContract, TokenRecord


async def check_refund_setup(
    signer: ExternalSigner | None,
    reader: RpcChainReader,
    chain: ChainRecord,
    tokens: Sequence[TokenRecord],
    contracts: Sequence[DeployedContract],
) -> AsyncGenerator[CheckResult]:
    """Check the signer's identity, and on the chain what the sender could refund right now."""
    sender = chain.refunder
    if signer is None or sender is None:
        missing = "signer" if signer is None else "refunder"
        yield CheckResult(False, f"refunds wait: no {missing} is set")
        return
    yield await _signer(signer, chain, sender)
    yield await _coins(signer, chain, sender)
    for token in tokens:
        if not token.enabled or token.native or token.address is None:
            continue
        for contract in contracts:
            if contract.current:
                yield await _token(reader, token, token.address, contract, sender)


async def _signer(signer: ExternalSigner, chain: ChainRecord, sender: bytes) -> CheckResult:
    try:
        signs = await signer.signs()
    except ChainUnavailableError as error:
        return CheckResult(False, f"refunds wait: {error}")
    if signs.network_id != chain.network_id:
        return CheckResult(
            False, f"the signer is chain {signs.network_id}, wanted is {chain.network_id}"
        )
    has = sender in signs.senders
    return CheckResult(
        has, f"the signer has {'a' if has else 'no'} key of {to_checksum_address(sender)}"
    )


async def _coins(signer: ExternalSigner, chain: ChainRecord, sender: bytes) -> CheckResult:
    """Check the sender's coins: each refund costs gas, one in coins its amount too."""
    where = f"the refunder {to_checksum_address(sender)}"
    try:
        coins = await signer.coins(sender)
    except ChainUnavailableError:
        return CheckResult(False, f"{where}: no endpoint shows its coins")
    return CheckResult(coins > 0, f"{where} has {_units(coins, 18)} {chain.coin_symbol}")


async def _token(
    reader: RpcChainReader,
    token: TokenRecord,
    address: bytes,
    contract: DeployedContract,
    sender: bytes,
) -> CheckResult:
    calls = (encode_balance_of(sender), encode_allowance(sender, contract.address))
    where = f"the refunder, {token.symbol} through {to_checksum_address(contract.address)}"
    amounts: list[int] = []
    for data in calls:
        word = await read_contract_word(reader, reader.names[0], address, data)
        if isinstance(word, str):
            return CheckResult(False, f"{where}: {to_checksum_address(address)} {word}")
        amounts.append(to_uint(word))
    has, may = amounts
    spends = "all of it" if may >= has else _units(may, token.decimals)
    return CheckResult(
        min(has, may) > 0, f"{where}: has {_units(has, token.decimals)}, may give back {spends}"
    )


def _units(amount: int, decimals: int) -> str:
    whole, part = divmod(amount, 10**decimals)
    return f"{whole}.{part:0{decimals}d}".rstrip("0").rstrip(".") if decimals else str(whole)
