"""Whether refunds can be sent on a chain: its signer, and what the refunder has and may spend."""

from collections.abc import AsyncGenerator, Sequence

from payintent.domain.errors import ChainDown
from payintent.evm.abi import allowance, balance_of, to_uint
from payintent.evm.chain_reader import Reader
from payintent.evm.keccak import checksummed
from payintent.evm.signer import Signer
from payintent.onchain.chain_checks import Finding, ask_word
from payintent.storage.onchain.chains import ChainRow, ContractRow, TokenRow


async def examine_refunds(
    signer: Signer | None,
    reader: Reader,
    chain: ChainRow,
    tokens: Sequence[TokenRow],
    contracts: Sequence[ContractRow],
) -> AsyncGenerator[Finding]:
    """Ask the signer who it is, and the chain what the refunder could give back right now."""
    sender = chain.refunder
    if signer is None or sender is None:
        missing = "signer" if signer is None else "refunder"
        yield Finding(False, f"refunds wait: no {missing} is set")
        return
    yield await _signer(signer, chain, sender)
    yield await _coins(signer, chain, sender)
    for token in tokens:
        if not token.enabled or token.native or token.address is None:
            continue
        for contract in contracts:
            if contract.current:
                yield await _token(reader, token, token.address, contract, sender)


async def _signer(signer: Signer, chain: ChainRow, sender: bytes) -> Finding:
    try:
        signs = await signer.signs()
    except ChainDown as error:
        return Finding(False, f"refunds wait: {error}")
    if signs.network_id != chain.network_id:
        return Finding(
            False, f"the signer is chain {signs.network_id}, wanted is {chain.network_id}"
        )
    has = sender in signs.senders
    return Finding(has, f"the signer has {'a' if has else 'no'} key of {checksummed(sender)}")


async def _coins(signer: Signer, chain: ChainRow, sender: bytes) -> Finding:
    """Every refund costs some of the chain's coin, and one in that coin its amount too."""
    where = f"the refunder {checksummed(sender)}"
    try:
        coins = await signer.coins(sender)
    except ChainDown:
        return Finding(False, f"{where}: nobody tells its coins")
    return Finding(coins > 0, f"{where} has {_units(coins, 18)} {chain.coin_symbol}")


async def _token(
    reader: Reader, token: TokenRow, address: bytes, contract: ContractRow, sender: bytes
) -> Finding:
    asked = (balance_of(sender), allowance(sender, contract.address))
    where = f"the refunder, {token.symbol} through {checksummed(contract.address)}"
    told: list[int] = []
    for data in asked:
        word = await ask_word(reader, reader.names[0], address, data)
        if isinstance(word, str):
            return Finding(False, f"{where}: {checksummed(address)} {word}")
        told.append(to_uint(word))
    has, may = told
    spends = "all of it" if may >= has else _units(may, token.decimals)
    return Finding(
        min(has, may) > 0, f"{where}: has {_units(has, token.decimals)}, may give back {spends}"
    )


def _units(amount: int, decimals: int) -> str:
    whole, part = divmod(amount, 10**decimals)
    return f"{whole}.{part:0{decimals}d}".rstrip("0").rstrip(".") if decimals else str(whole)
