"""Payment metadata: an opaque JSON object that is stored and returned byte for byte."""

import json
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, cast

import msgspec

from payintent.api.request_body import nesting_depth
from payintent.config import Settings
from payintent.domain.errors import ErrorCode, RefusedError

#: Python's parser refuses integers of more than 4,300 digits, and many clients have lower limits.
NUMBER_DIGITS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Metadata:
    text: str  # as received
    canonical: str | None  # equal for metadata with the same meaning; None if empty


_EMPTY = Metadata("{}", None)


def read_metadata(raw: msgspec.Raw, settings: Settings) -> Metadata:
    """Check metadata and return it; missing metadata counts as `{}`.

    Raises `BAD_REQUEST` unless it is an object of at most 16 KiB and 32 levels. Its numbers may
    have up to 1,000 digits.
    """
    content = bytes(raw)
    if content == b"null":
        return _EMPTY
    if not content.startswith(b"{"):
        raise RefusedError(ErrorCode.BAD_REQUEST, "metadata must be an object")
    if len(content) > settings.metadata_bytes_max:
        raise RefusedError(
            ErrorCode.BAD_REQUEST, f"metadata must have at most {settings.metadata_bytes_max} bytes"
        )
    if nesting_depth(content) > settings.metadata_levels_max:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"metadata must have at most {settings.metadata_levels_max} levels",
        )
    text = content.decode()
    return Metadata(text, _canonical(text))


def _canonical(text: str) -> str | None:
    """Return JSON that does not depend on key order, white space and escapes.

    Objects become `{"o": [[key, value], ...]}` and numbers `{"n": "1.50"}`, so that no object in
    the metadata can be mistaken for either. Numbers are compared as text.
    """
    value = _PARSER.decode(text)
    return None if value == _NO_PAIRS else json.dumps(value, separators=(",", ":"))


def _tag_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {"o": sorted(pairs, key=itemgetter(0))}


def _tag_number(text: str) -> dict[str, str]:
    if len(text) > NUMBER_DIGITS_MAX and sum(map(str.isdigit, text)) > NUMBER_DIGITS_MAX:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"a number in metadata must have at most {NUMBER_DIGITS_MAX} digits;"
            " send a longer one as a string",
        )
    return {"n": text}


_NO_PAIRS = _tag_object([])
# The parse hooks receive the text of a number before Python converts it.
_PARSER = json.JSONDecoder(
    object_pairs_hook=_tag_object, parse_float=cast("Any", _tag_number), parse_int=_tag_number
)
