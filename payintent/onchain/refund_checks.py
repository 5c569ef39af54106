"""Check whether refunds can be sent on a chain: the signer, and the refunder's funds."""

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
    """Check the identity of the signer, and the funds and allowances of the refunder."""
    sender = chain.refunder
    if signer is None or sender is None:
        missing = "signer" if signer is None else "refunder"
        yield CheckResult(False, f"refunds are on hold: no {missing} is configured")
        return
    yield await _check_signer(signer, chain, sender)
    yield await _check_coins(signer, chain, sender)
    for token in tokens:
        if not token.enabled or token.native or token.address is None:
            continue
        for contract in contracts:
            if contract.current:
                yield await _check_allowance(reader, token, token.address, contract, sender)


async def _check_signer(signer: ExternalSigner, chain: ChainRecord, sender: bytes) -> CheckResult:
    try:
        identity = await signer.identity()
    except ChainUnavailableError as error:
        return CheckResult(False, f"refunds are on hold: {error}")
    if identity.network_id != chain.network_id:
        return CheckResult(
            False, f"the signer is chain {identity.network_id}, expected is {chain.network_id}"
        )
    has_key = sender in identity.senders
    return CheckResult(
        has_key, f"the signer has {'a' if has_key else 'no'} key of {to_checksum_address(sender)}"
    )


async def _check_coins(signer: ExternalSigner, chain: ChainRecord, sender: bytes) -> CheckResult:
    """Check the native balance, which pays for the gas of all refunds and for coin refunds."""
    refunder = f"the refunder {to_checksum_address(sender)}"
    try:
        coins = await signer.coins(sender)
    except ChainUnavailableError:
        return CheckResult(False, f"{refunder}: no endpoint returns its balance")
    return CheckResult(coins > 0, f"{refunder} has {_format_units(coins, 18)} {chain.coin_symbol}")


async def _check_allowance(
    reader: RpcChainReader,
    token: TokenRecord,
    address: bytes,
    contract: DeployedContract,
    sender: bytes,
) -> CheckResult:
    calls = (encode_balance_of(sender), encode_allowance(sender, contract.address))
    subject = f"the refunder, {token.symbol} through {to_checksum_address(contract.address)}"
    amounts: list[int] = []
    for data in calls:
        word = await read_contract_word(reader, reader.names[0], address, data)
        if isinstance(word, str):
            return CheckResult(False, f"{subject}: {to_checksum_address(address)} {word}")
        amounts.append(to_uint(word))
    balance, allowance = amounts
    usable = "all of it" if allowance >= balance else _format_units(allowance, token.decimals)
    return CheckResult(
        min(amounts) > 0,
        f"{subject}: has {_format_units(balance, token.decimals)}, may refund {usable}",
    )


def _format_units(amount: int, decimals: int) -> str:
    whole, part = divmod(amount, 10**decimals)
    return f"{whole}.{part:0{decimals}d}".rstrip("0").rstrip(".") if decimals else str(whole)
