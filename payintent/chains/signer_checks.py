"""Check the keys, funds and allowances of the accounts that send refunds and sweeps."""

from collections.abc import AsyncGenerator, Sequence

from payintent.chains.checks import CheckResult, read_contract_word
from payintent.chains.store import ChainRecord, DeployedContract, TokenRecord
from payintent.core.errors import ChainUnavailableError
from payintent.evm.abi import encode_allowance, encode_balance_of, to_checksum_address, to_uint
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.signer import ExternalSigner


async def check_refund_setup(
    signer: ExternalSigner | None,
    reader: RpcChainReader,
    chain: ChainRecord,
    tokens: Sequence[TokenRecord],
    contracts: Sequence[DeployedContract],
) -> AsyncGenerator[CheckResult]:
    """Check the signer's identity, and the refunder's funds and allowances."""
    sender = chain.refunder
    if signer is None or sender is None:
        missing_setting = "signer" if signer is None else "refunder"
        yield CheckResult(False, f"refunds are on hold: no {missing_setting} is configured")
        return
    yield await _check_signer(signer, chain, sender, "refunds are on hold")
    yield await _check_coins(signer, chain, sender, "refunder")
    for token in tokens:
        if token.enabled and not token.native and token.address is not None:
            for contract in contracts:
                if contract.current:
                    yield await _check_allowance(reader, token, token.address, contract, sender)


async def check_sweep_setup(
    signer: ExternalSigner | None, chain: ChainRecord, *, has_factory: bool
) -> AsyncGenerator[CheckResult]:
    """Check the sweeper's key and its gas, if the chain has a deposit factory or a sweeper."""
    sender = chain.sweeper
    if sender is None and not has_factory:
        return
    if signer is None or sender is None:
        missing = "signer" if signer is None else "sweeper"
        yield CheckResult(False, f"deposits are not swept: no {missing} is configured")
        return
    yield await _check_signer(signer, chain, sender, "deposits are not swept")
    yield await _check_coins(signer, chain, sender, "sweeper")


async def _check_signer(
    signer: ExternalSigner, chain: ChainRecord, sender: bytes, effect: str
) -> CheckResult:
    try:
        identity = await signer.get_identity()
    except ChainUnavailableError as error:
        return CheckResult(False, f"{effect}: {error}")
    if identity.network_id != chain.network_id:
        return CheckResult(
            False,
            f"the signer is on chain {identity.network_id}, expected chain {chain.network_id}",
        )
    has_key = sender in identity.senders
    return CheckResult(
        has_key,
        f"the signer {'has a' if has_key else 'does not have a'} key "
        f"for {to_checksum_address(sender)}",
    )


async def _check_coins(
    signer: ExternalSigner, chain: ChainRecord, sender: bytes, role: str
) -> CheckResult:
    """Check the native balance, which pays for coin refunds and for the gas of transactions."""
    account = f"the {role} {to_checksum_address(sender)}"
    try:
        coins = await signer.get_balance(sender)
    except ChainUnavailableError:
        return CheckResult(False, f"{account}: no endpoint returns its balance")
    return CheckResult(coins > 0, f"{account} has {_format_units(coins, 18)} {chain.coin_symbol}")


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
    usable_allowance = (
        "all of it" if allowance >= balance else _format_units(allowance, token.decimals)
    )
    return CheckResult(
        min(amounts) > 0,
        f"{subject}: has {_format_units(balance, token.decimals)} "
        f"and can refund {usable_allowance}",
    )


def _format_units(amount: int, decimals: int) -> str:
    whole, fraction = divmod(amount, 10**decimals)
    return f"{whole}.{fraction:0{decimals}d}".rstrip("0").rstrip(".") if decimals else str(whole)
