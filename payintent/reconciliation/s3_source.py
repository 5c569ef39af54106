"""Read gateways' files from an S3-compatible bucket: `<prefix>/<account>/<file>`."""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit
from xml.etree import ElementTree as ET

import aiohttp

from payintent.config import Settings
from payintent.exact_url import exact_url
from payintent.reconciliation.s3_signature import S3Credentials, canonical_query, sign_get
from payintent.reconciliation.sources import (
    SourceUnavailableError,
    is_file_name,
    parse_account_id,
)
from payintent.slot import release_slot
from payintent.storage.reconciliation_runs import SourceFile

_OK = 200
_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 60.0  # between two chunks of an answer
_LIST_BYTES_MAX = 8 * 1024**2  # per page of a thousand keys
_FILE_BYTES_MAX = 4 * 1024**3
_CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    tags: dict[str, str]
    next_token: str | None


class S3Source:
    """A bucket with a path-style URL: `https://host/bucket`, optionally with a key prefix."""

    name = "s3"

    def __init__(
        self, url: str, credentials: S3Credentials, tls: ssl.SSLContext | None = None
    ) -> None:
        parts = urlsplit(url)
        bucket, _, prefix = unquote(parts.path.strip("/")).partition("/")
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._host = parts.netloc
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._credentials = credentials
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def walk_files(self) -> AsyncGenerator[list[SourceFile]]:
        query = {"list-type": "2", "prefix": self._prefix}
        while True:
            page = _parse_page(await self._get_page(query))
            candidates = (self._to_source_file(key, tag) for key, tag in page.tags.items())
            if files := [file for file in candidates if file is not None]:
                yield files
            if page.next_token is None:
                return
            query["continuation-token"] = page.next_token

    @asynccontextmanager
    async def open(self, file: SourceFile) -> AsyncGenerator[Path]:
        key = f"{self._prefix}{file.account_id}/{file.name}"
        with tempfile.NamedTemporaryFile(prefix="payintent-settlement-") as copy:
            size = 0
            # A file that was overwritten since has a new tag; the next poll lists it.
            async with self._get(key, {}, {"If-Match": file.version}) as answer:
                async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                    size += len(chunk)
                    if size > _FILE_BYTES_MAX:
                        raise SourceUnavailableError("the file is too large")
                    await asyncio.to_thread(copy.write, chunk)
            copy.flush()
            yield Path(copy.name)

    async def close(self) -> None:
        if self._session:
            await self._session.close()
            self._session = None

    def _to_source_file(self, key: str, tag: str) -> SourceFile | None:
        folder, _, name = key.removeprefix(self._prefix).partition("/")
        account_id = parse_account_id(folder)
        if account_id is None or "/" in name or not is_file_name(name):
            return None
        return SourceFile(source=self.name, account_id=account_id, name=name, version=tag)

    async def _get_page(self, query: Mapping[str, str]) -> bytes:
        body = bytearray()
        async with self._get("", query, {}) as answer:
            async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                body += chunk
                if len(body) > _LIST_BYTES_MAX:
                    raise SourceUnavailableError("the list is too large")
        return bytes(body)

    @asynccontextmanager
    async def _get(
        self, key: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        path = "/" + quote(f"{self._bucket}/{key}" if key else self._bucket, safe="/-_.~")
        signed = sign_get(
            self._credentials,
            host=self._host,
            path=path,
            query=query,
            headers=headers,
            at=datetime.now(UTC),
        )
        url = f"{self._origin}{path}" + (f"?{canonical_query(query)}" if query else "")
        release_slot()
        try:
            async with self._http_session().get(
                exact_url(url), headers=signed, allow_redirects=False
            ) as answer:
                if answer.status != _OK:
                    raise SourceUnavailableError(f"the store answered {answer.status}")
                yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            # Only the class: a message may contain the URL.
            raise SourceUnavailableError(type(error).__name__) from error

    def _http_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=_READ_TIMEOUT_S
                ),
                connector=aiohttp.TCPConnector(ssl=self._tls or True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session


def open_s3_source(settings: Settings) -> S3Source:
    credentials = S3Credentials(
        region=settings.settlement_s3_region,
        key_id=settings.settlement_s3_key_id,
        secret_key=settings.settlement_s3_secret_key.get_secret_value(),
    )
    return S3Source(settings.settlement_s3_url, credentials, settings.client_tls)


def _parse_page(body: bytes) -> _Page:
    try:
        # The operator's own store sends this, and its size is limited; expat rejects entity bombs.
        root = ET.fromstring(body)  # noqa: S314
    except ET.ParseError as error:
        raise SourceUnavailableError("the list is not valid XML") from error
    if root.tag.rpartition("}")[2] != "ListBucketResult":
        raise SourceUnavailableError("the answer is not a bucket listing")
    namespace = root.tag.removesuffix("ListBucketResult")
    tags = {
        item.findtext(f"{namespace}Key") or "": item.findtext(f"{namespace}ETag") or ""
        for item in root.findall(f"{namespace}Contents")
    }
    return _Page(tags=tags, next_token=root.findtext(f"{namespace}NextContinuationToken"))
