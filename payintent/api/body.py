"""Reading requests: sizes and types are checked here, once, before anything is parsed."""

import re
from collections.abc import Mapping
from typing import Protocol, TypeVar
from uuid import UUID

import msgspec
from starlette.requests import ClientDisconnect, Request

from payintent.domain.errors import Code, Refused

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
LEVELS_MAX = 200  # of a whole body; metadata has a limit of its own
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

_UUID = re.compile(
    r'"?([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"?', re.ASCII | re.IGNORECASE
)


class Decoder(Protocol[T_co]):
    """Reads a JSON text into its shape; `msgspec.DecodeError` where it is not of that shape."""

    def decode(self, encoded: bytes, /) -> T_co:
        """Decode a JSON text."""
        ...


class TooLarge(Exception):  # noqa: N818
    """The body is larger than this route takes."""


class WrongType(Exception):  # noqa: N818
    """The body is not of the type that this route takes."""


async def read_raw(request: Request, bytes_max: int) -> bytes:
    """Read a body, at most `bytes_max` of it (`TooLarge`)."""
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdecimal() and int(declared) > bytes_max:
        raise TooLarge
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > bytes_max:
                raise TooLarge
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise Refused(Code.BAD_REQUEST, "the body ended early") from error
    return b"".join(chunks)


async def read_json(
    request: Request, decoder: Decoder[T], bytes_max: int, empty: T | None = None
) -> T:
    """Read a JSON body into its shape; refused (`BAD_REQUEST`) with the field in the message.

    `empty` is what no body at all stands for; without it, there must be one.
    """
    raw = await read_raw(request, bytes_max)
    if not raw and empty is not None:
        return empty
    content_type = request.headers.get("content-type", "")
    if raw and content_type.partition(";")[0].strip().lower() != "application/json":
        raise WrongType
    if raw.count(b"{") + raw.count(b"[") > LEVELS_MAX and levels(raw) > LEVELS_MAX:
        # Known before it is decoded: how deep a decoder may go differs between processes.
        raise Refused(Code.BAD_REQUEST, "the body is nested too deeply")
    try:
        raw.decode()  # the decoder does not look into what it skips or keeps raw
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(Code.BAD_REQUEST, _explained(error)) from error


def levels(encoded: bytes) -> int:
    """Count how deep objects and arrays of a JSON text are nested; strings do not count."""
    depth = deepest = 0
    for byte in _STRING.sub(b"", encoded):
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def idempotency_key(headers: Mapping[str, str]) -> UUID | None:
    """Read `Idempotency-Key`, a UUID with or without quotes; None where it was not sent."""
    raw = headers.get("idempotency-key")
    if raw is None:
        return None
    match = _UUID.fullmatch(raw.strip())
    if match is None:
        raise Refused(Code.BAD_REQUEST, "Idempotency-Key must be a UUID")
    return UUID(match[1])


def _explained(error: Exception) -> str:
    """Say what is wrong in a few words; msgspec names the field as `$.field`."""
    return f"the body is not as expected: {error}".replace("`$.", "`")[:300]
