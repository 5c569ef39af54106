r"""Create bodies whose metadata names halves of surrogate pairs, such as `"\ud83d"`.

JSON allows such escapes (RFC 8259, section 8.2), the decoder refuses them. They are replaced by a
placeholder before the body is decoded, and put back into the metadata, which is kept as it is.
"""

import re
import secrets

import msgspec

from payintent.api.schemas import CreatePaymentBody

_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    rb"|u(?P<half>[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|.)",
    re.DOTALL,
)
_DECODER = msgspec.json.Decoder(CreatePaymentBody)
_PLACEHOLDER_BYTES = 16  # random bytes, so that no body contains it already


class CreateDecoder:
    def decode(self, encoded: bytes) -> CreatePaymentBody:
        if b"\\ud" not in encoded and b"\\uD" not in encoded:
            return _DECODER.decode(encoded)
        placeholder = b"~%b~" % secrets.token_hex(_PLACEHOLDER_BYTES).encode()
        replaced, halves = _replace_halves(encoded, placeholder)
        body = _DECODER.decode(replaced)
        metadata = bytes(body.metadata)
        if metadata.count(placeholder) != halves:
            message = "half a surrogate pair outside of `metadata`"
            raise msgspec.DecodeError(message)
        body.metadata = msgspec.Raw(metadata.replace(placeholder, b"\\u"))
        return body


def _replace_halves(encoded: bytes, placeholder: bytes) -> tuple[bytes, int]:
    r"""Replace the `\u` of each half of a pair; gives how many there were."""
    halves = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal halves
        half = match["half"]
        if half is None:
            return match[0]
        halves += 1
        return placeholder + half

    return _ESCAPE.sub(replace, encoded), halves


CREATE = CreateDecoder()
