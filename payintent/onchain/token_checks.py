"""Compares tokens on their chain with the operator's settings."""

from collections.abc import Sequence

from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import CallRevertedError, ChainReader
from payintent.evm.abi import WORD, encode_decimals, to_uint
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
            shown = await _decimals(reader, token.address, token.decimals)
            if shown != token.decimals:
                _log.error("token_misfit", chain=chain, token=token.symbol, decimals=shown)
                return False
    return True


async def _decimals(reader: ChainReader, token: bytes, expected: int) -> int | None:
    """Ask one endpoint after the other until one shows what is set: one alone halts no chain.

    Returns what the last one showed; None where there is no token, or it has no such function.
    """
    answered, shown = False, None
    for name in reader.names:
        try:
            shown = _read_decimals(await reader.call(name, token, encode_decimals()))
        except CallRevertedError:
            shown = None
        except ChainUnavailableError:
            continue
        answered = True
        if shown == expected:
            return shown
    if not answered:
        raise ChainUnavailableError("no endpoint tells a token's decimals")
    return shown


def _read_decimals(answer: bytes) -> int | None:
    return to_uint(answer) if len(answer) == WORD else None
