"""Compares tokens on their chain with the operator's settings."""

from collections.abc import Sequence

from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import CallRevertedError, ChainReader
from payintent.evm.abi import encode_decimals, to_uint
from payintent.log import get_logger
from payintent.storage.onchain.chains import TokenRecord

_log = get_logger("tokens")


async def token_decimals_match(
    chain: str, reader: ChainReader, tokens: Sequence[TokenRecord]
) -> bool:
    """Tell whether every enabled token has the decimals that the operator has set.

    A token of 6 decimals that is taken for one of 18 is an error of 10^12: such a chain is not
    watched. Raises `ChainUnavailableError` where no endpoint answers.
    """
    for token in tokens:
        if token.enabled and token.address is not None and not token.native:
            decimals = await _decimals(reader, token.address)
            if decimals != token.decimals:
                _log.error("token_misfit", chain=chain, token=token.symbol, decimals=decimals)
                return False
    return True


async def _decimals(reader: ChainReader, token: bytes) -> int | None:
    """Read a token's decimals; None where there is no token, or it has no such function."""
    for name in reader.names:
        try:
            answer = await reader.call(name, token, encode_decimals())
        except CallRevertedError:
            return None
        except ChainUnavailableError:
            continue
        return to_uint(answer) if answer else None
    raise ChainUnavailableError("no endpoint tells a token's decimals")
