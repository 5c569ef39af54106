"""What operations on chains are given: a chain by its slug, an address by its digits."""

import re
from typing import Annotated

from payintent.domain.errors import BadRequestError, NotFoundError, RefusedError
from payintent.evm.keccak import parse_address
from payintent.operations.fields import argument
from payintent.operations.validation import quote_input
from payintent.storage.database import Executor, Tx
from payintent.storage.onchain import chains
from payintent.storage.onchain.chains import ChainRecord

ChainSlug = Annotated[str, argument("Such as ethereum.")]
#: An amount of tokens.
TOKENS = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")


async def require_chain(database: Executor, slug: str) -> ChainRecord:
    """Read a chain; refused (`NOT_FOUND`) if there is none of that slug."""
    found = await chains.get_chain(database, slug)
    if found is None:
        raise _unknown(slug)
    return found


async def lock_known_chain(tx: Tx, slug: str) -> ChainRecord:
    """Lock a chain for this transaction; refused (`NOT_FOUND`) like `require_chain`."""
    found = await chains.lock_chain(tx, slug)
    if found is None:
        raise _unknown(slug)
    return found


def _unknown(slug: str) -> RefusedError:
    return NotFoundError(f"no chain {quote_input(slug)}")


def read_address(what: str, text: str) -> bytes:
    """Read 20 bytes from `0x` and hex digits; refused (`BAD_REQUEST`), checksum included."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise BadRequestError(f"{what}: {error}") from error
