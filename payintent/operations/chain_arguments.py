"""Arguments of chain operations: chain slugs, addresses and token amounts."""

import re
from typing import Annotated

from payintent.domain.errors import BadRequestError, NotFoundError
from payintent.evm.keccak import parse_address
from payintent.operations.fields import argument
from payintent.operations.validation import quote_input
from payintent.storage.database import Executor, Tx
from payintent.storage.onchain import chains
from payintent.storage.onchain.chains import ChainRecord

ChainSlug = Annotated[str, argument("The chain, such as ethereum.")]
TOKENS = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")


async def require_chain(database: Executor, slug: str) -> ChainRecord:
    """Return a chain; raises `NOT_FOUND`."""
    return _require(await chains.get_chain(database, slug), slug)


async def lock_known_chain(tx: Tx, slug: str) -> ChainRecord:
    """Lock a chain; raises `NOT_FOUND`."""
    return _require(await chains.lock_chain(tx, slug), slug)


def _require(chain: ChainRecord | None, slug: str) -> ChainRecord:
    if chain is None:
        raise NotFoundError(f"no chain {quote_input(slug)}")
    return chain


def read_address(name: str, text: str) -> bytes:
    """Parse a `0x` address with its checksum; raises `BAD_REQUEST`."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise BadRequestError(f"{name}: {error}") from error
