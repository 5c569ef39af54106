"""The cell of a checkout, sealed in its id (decision 117): nobody without the key can tell it."""

import hmac

from payintent.domain import ids

#: The ids that may be drawn: each has a number for every cell below `62 ** CHECKOUT_CHARS`.
DRAWN_END = 62**ids.CHECKOUT_CHARS >> ids.CELL_BITS
_DRAWN_BYTES = 12


class CheckoutSeal:
    """Writes a cell into checkout ids, and reads it out of them."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, cell: int, drawn: int) -> str:
        """Make the id of a checkout in a cell from a random number below `DRAWN_END`."""
        number = drawn << ids.CELL_BITS | cell ^ self._mask(drawn)
        return f"cs_{ids.to_base62(number, ids.CHECKOUT_CHARS)}"

    def cell_of(self, checkout_id: str) -> int:
        """Return the cell that a well-formed id names; any one for an id that was not sealed."""
        number = ids.from_base62(checkout_id.removeprefix("cs_"))
        drawn = number >> ids.CELL_BITS
        return number & ids.CELL_MAX ^ self._mask(drawn)

    def _mask(self, drawn: int) -> int:
        digest = hmac.digest(self._key, drawn.to_bytes(_DRAWN_BYTES, "big"), "sha256")
        return int.from_bytes(digest[:2], "big") & ids.CELL_MAX
