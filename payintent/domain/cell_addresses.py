"""Where the databases of cells are, as the setting says it: JSON by the cells' numbers."""

import json
from dataclasses import dataclass, field
from typing import cast

from payintent.domain import ids

_FORM = 'is not as {"1": {"url": "postgresql://…"}}'
_TEXTS = ("url", "direct_url", "read_url")
_NUMBERS = {str(number): number for number in range(1, ids.CELL_MAX + 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CellAddress:
    """What `DATABASE_URL` and its companions are of cell 0."""

    url: str = field(repr=False)  # it holds a password, as the others do
    direct_url: str | None = field(default=None, repr=False)
    read_url: str | None = field(default=None, repr=False)
    pooled: bool = False


def parse_cell_addresses(text: str) -> dict[int, CellAddress]:
    """Parse the addresses of all cells but 0, by number; `ValueError`, which repeats none."""
    if not text.strip():
        return {}
    try:
        given: object = json.loads(text)
    except ValueError as error:
        raise ValueError(_FORM) from error
    _require(isinstance(given, dict), _FORM)
    addresses: dict[int, CellAddress] = {}
    for name, address in cast("dict[str, object]", given).items():
        _require(name in _NUMBERS, f"has an entry that is no cell from 1 to {ids.CELL_MAX}")
        addresses[_NUMBERS[name]] = _address(name, address)
    return dict(sorted(addresses.items()))


def _address(name: str, given: object) -> CellAddress:
    _require(isinstance(given, dict), _FORM)
    fields = cast("dict[str, object]", given)
    allowed = (*_TEXTS, "pooled")
    _require(
        fields.keys() <= set(allowed), f"has for cell {name} what is none of {', '.join(allowed)}"
    )
    texts = {kind: fields[kind] for kind in _TEXTS if kind in fields}
    _require(bool(texts.get("url")), f"has no url for cell {name}")
    for kind, value in texts.items():
        _require(isinstance(value, str), f"has a {kind} for cell {name} that is no text")
    pooled = fields.get("pooled", False)
    _require(isinstance(pooled, bool), f"has pooled of cell {name} neither true nor false")
    past = texts.get("direct_url")
    _require(not pooled or bool(past), f"has cell {name} behind a pooler, and no direct_url")
    return CellAddress(**cast("dict[str, str]", texts), pooled=pooled is True)


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise ValueError(why)
