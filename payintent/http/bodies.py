"""Reads request bodies, and checks their size and content type before parsing them."""

import re
import secrets
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import msgspec
from starlette.requests import ClientDisconnect, Request

from payintent.core.errors import BadRequestError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_LENGTH_DIGITS_MAX = 18
_EXCESSIVE_LENGTH = 10**_LENGTH_DIGITS_MAX
DEPTH_MAX = 200  # nesting depth of a body; metadata has a separate limit
#: Proxies that buffer a chunked body set its length, and rename the original header to `x-…`.
_CHUNKED_HEADERS = ("transfer-encoding", "x-transfer-encoding")
_JSON_SPACE = b" \t\r\n"
_DEPTH_CHANGES = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _DEPTH_CHANGES)

_UUID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE
)


class Decoder(Protocol[T_co]):
    def decode(self, json_bytes: bytes, /) -> T_co:
        """Decode JSON. Raises `msgspec.DecodeError` if it is invalid."""
        ...


class BodyTooLargeError(Exception):
    """The body exceeds the route's size limit."""


class WrongContentTypeError(Exception):
    """The body's content type is not JSON, or the body is compressed."""


async def read_body(request: Request, bytes_max: int) -> bytes:
    """Read a whole body, or raise `BodyTooLargeError` if it exceeds `bytes_max`.

    Raises `BAD_REQUEST` if the length differs from `Content-Length`, or if a chunked body is empty:
    such requests must not be treated as requests without a body.
    """
    length = _read_length(request.headers)
    if length is not None and length > bytes_max:
        raise BodyTooLargeError
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > bytes_max:
                raise BodyTooLargeError
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise BadRequestError("the request body is incomplete") from error
    if length is not None and size != length:
        raise BadRequestError("the body length does not match Content-Length")
    if size == 0 and any(name in request.headers for name in _CHUNKED_HEADERS):
        raise BadRequestError("a chunked body must not be empty")
    return b"".join(chunks)


def _read_length(headers: Mapping[str, str]) -> int | None:
    length = headers.get("content-length")
    if length is None:
        return None
    if not (length.isascii() and length.isdecimal()):
        raise BadRequestError("Content-Length must be a number")
    return int(length) if len(length) <= _LENGTH_DIGITS_MAX else _EXCESSIVE_LENGTH


async def read_json(
    request: Request, decoder: Decoder[T], bytes_max: int, default: T | None = None
) -> T:
    """Read and decode a JSON body. Raises `BAD_REQUEST` with the name of an invalid field.

    Returns `default` if there is no body; if `default` is None, a body is required. `null` is
    decoded as `{}`.
    """
    body = await read_body(request, bytes_max)
    if not body:
        if default is None:
            raise BadRequestError("the request must have a JSON body")
        return default
    if body.strip(_JSON_SPACE) == b"null":
        body = b"{}"
    content_type = request.headers.get("content-type", "")
    content_encoding = request.headers.get("content-encoding", "identity")
    if (
        content_type.partition(";")[0].strip().lower() != "application/json"
        or content_encoding.lower() != "identity"
    ):
        raise WrongContentTypeError
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX and nesting_depth(body) > DEPTH_MAX:
        # Checked before decoding, because the decoder's own depth limit varies between processes.
        raise BadRequestError(f"the body must not be nested deeper than {DEPTH_MAX} levels")
    try:
        body.decode()  # the decoder does not validate UTF-8 in skipped and raw fields
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(_describe_error(error)) from error


def nesting_depth(json_bytes: bytes) -> int:
    """Return the nesting depth of objects and arrays in JSON text.

    Runs in linear time for any input, including hostile or invalid JSON.
    """
    without_escapes = json_bytes.replace(rb"\\", b"").replace(rb"\"", b"")
    outside_strings = b"".join(without_escapes.split(b'"')[::2])
    brackets = outside_strings.translate(None, delete=_NO_BRACKETS)
    return max(accumulate(map(_DEPTH_CHANGES.__getitem__, brackets)), default=0)


def read_idempotency_key(headers: Mapping[str, str]) -> UUID | None:
    """Return the UUID in the `Idempotency-Key` header, or None if the header is missing.

    The value may be quoted. Raises `BAD_REQUEST` if it is invalid.
    """
    value = headers.get("idempotency-key")
    if value is None:
        return None
    text = value.strip(" \t")
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    if _UUID.fullmatch(text) is None:
        raise BadRequestError("Idempotency-Key must be a UUID")
    return UUID(text)


def _describe_error(error: Exception) -> str:
    """Describe a decoding error briefly, without the `$.` that msgspec puts before fields."""
    return f"invalid request body: {error}".replace("`$.", "`")[:300]


def get_content_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return `Content-Length`, or 0 if it is missing. The parser has already validated it."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


def count_head_bytes(url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> int:
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


class _HasMetadata(Protocol):
    metadata: msgspec.Raw


MetadataT = TypeVar("MetadataT", bound=_HasMetadata)
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a surrogate pair
    rb"|u(?P<surrogate>[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|.)",
    re.DOTALL,
)
_PLACEHOLDER_BYTES = 16  # long enough that no body contains the placeholder by chance


class MetadataDecoder(Generic[MetadataT]):
    """Decodes a body whose `metadata` field is raw JSON and may contain unpaired surrogates."""

    def __init__(self, body_type: type[MetadataT]) -> None:
        self._decoder = msgspec.json.Decoder(body_type)

    def decode(self, json_bytes: bytes) -> MetadataT:
        if b"\\ud" not in json_bytes and b"\\uD" not in json_bytes:
            return self._decoder.decode(json_bytes)
        placeholder = b"~%b~" % secrets.token_hex(_PLACEHOLDER_BYTES).encode()
        json_bytes, count = _replace_unpaired(json_bytes, placeholder)
        body = self._decoder.decode(json_bytes)
        metadata = bytes(body.metadata)
        if metadata.count(placeholder) != count:
            raise msgspec.DecodeError("unpaired surrogates are only allowed in `metadata`")
        body.metadata = msgspec.Raw(metadata.replace(placeholder, b"\\u"))
        return body


def _replace_unpaired(json_bytes: bytes, placeholder: bytes) -> tuple[bytes, int]:
    r"""Replace the `\u` of each unpaired surrogate. Returns the JSON and the replacement count."""
    count = 0

    def replace(match: re.Match[bytes]) -> bytes:
        nonlocal count
        surrogate = match["surrogate"]
        if surrogate is None:
            return match[0]
        count += 1
        return placeholder + surrogate

    return _ESCAPE.sub(replace, json_bytes), count
