"""Compare tokens on their chain with the configuration before the chain is watched."""

from collections.abc import Sequence

from payintent.domain.errors import ChainUnavailableError
from payintent.domain.evm import CallRevertedError, ChainReader
from payintent.evm.abi import WORD, encode_decimals, to_uint
from payintent.log import get_logger
from payintent.storage.onchain.chains import TokenRecord

_token_log = get_logger("tokens")


async def token_decimals_match(
    chain: str, reader: ChainReader, tokens: Sequence[TokenRecord]
) -> bool:
    """Return True if every enabled token has the configured decimals.

    Otherwise the chain is not watched: confusing 6 with 18 decimals is an error of 10^12. Raises
    `ChainUnavailableError` if no endpoint answers.
    """
    for token in tokens:
        if token.enabled and token.address is not None and not token.native:
            decimals = await _fetch_decimals(reader, token.address, token.decimals)
            if decimals != token.decimals:
                _token_log.error("token_misfit", chain=chain, token=token.symbol, decimals=decimals)
                return False
    return True


async def _fetch_decimals(reader: ChainReader, token: bytes, expected: int) -> int | None:
    """Query endpoints until the expected decimals are found, so that none can halt the chain alone.

    Otherwise returns the last answer; None if there is no token or no such function.
    """
    has_answer, decimals = False, None
    for name in reader.names:
        try:
            answer = await reader.call(name, token, encode_decimals())
            decimals = to_uint(answer) if len(answer) == WORD else None
        except CallRevertedError:
            decimals = None
        except ChainUnavailableError:
            continue
        has_answer = True
        if decimals == expected:
            return decimals
    if not has_answer:
        raise ChainUnavailableError("no endpoint returns the decimals of a token")
    return decimals
