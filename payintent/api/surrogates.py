r"""Decoding of bodies with unpaired surrogate escapes in their metadata, such as `"\ud83d"`.

JSON allows such escapes (RFC 8259, section 8.2), but the decoder rejects them. They are replaced by
a placeholder before the body is decoded and restored in the metadata, which is stored unchanged.
"""

import re
import secrets
from typing import Generic, Protocol, TypeVar

import msgspec


class _HasMetadata(Protocol):
    metadata: msgspec.Raw


T = TypeVar("T", bound=_HasMetadata)
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    rb"|u(?P<half>[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|.)",
    re.DOTALL,
)
_PLACEHOLDER_BYTES = 16  # random bytes, so that no body contains it already


class MetadataDecoder(Generic[T]):
    """Decodes a body with a raw `metadata` field, in which unpaired surrogates are allowed."""

    def __init__(self, body_type: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(body_type)

    def decode(self, encoded: bytes) -> T:
        if b"\\ud" not in encoded and b"\\uD" not in encoded:
            return self._decoder.decode(encoded)
        placeholder = b"~%b~" % secrets.token_hex(_PLACEHOLDER_BYTES).encode()
        replaced, count = _replace_unpaired(encoded, placeholder)
        body = self._decoder.decode(replaced)
        metadata = bytes(body.metadata)
        if metadata.count(placeholder) != count:
            message = "half a surrogate pair outside of `metadata`"
            raise msgspec.DecodeError(message)
        body.metadata = msgspec.Raw(metadata.replace(placeholder, b"\\u"))
        return body


def _replace_unpaired(encoded: bytes, placeholder: bytes) -> tuple[bytes, int]:
    r"""Replace the `\u` of each unpaired surrogate; also return the number of replacements."""
    count = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal count
        half = match["half"]
        if half is None:
            return match[0]
        count += 1
        return placeholder + half

    return _ESCAPE.sub(replace, encoded), count
