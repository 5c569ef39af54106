"""Sources of gateway files: a local folder or an S3 bucket, with a folder per account."""

import asyncio
import hashlib
import hmac
import ssl
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISREG
from typing import Protocol
from urllib.parse import quote, unquote, unquote_plus, urlsplit
from xml.etree import ElementTree as ET

import aiohttp

from payintent.reconciliation.runs_store import SourceFile
from payintent.runtime.http_session import HttpSession, make_exact_url
from payintent.runtime.settings import Settings
from payintent.runtime.waiting import release_slot

_PAGE_FILES = 1_000
_NAME_MAX = 200
_ACCOUNT_DIGITS_MAX = 18
_OK = 200
_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 60.0  # maximum time between two chunks of a response
_LIST_BYTES_MAX = 8 * 1024**2  # for a page of a thousand keys
_FILE_BYTES_MAX = 4 * 1024**3
_CHUNK_BYTES = 256 * 1024
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"
#: Suffixes of files that are still being written.
_PARTIAL_SUFFIXES = (".part", ".tmp", ".filepart")


class SourceUnavailableError(Exception):
    """The folder or bucket is unavailable. The next poll tries again."""


class FileSource(Protocol):
    name: str

    def walk_files(self) -> AsyncGenerator[list[SourceFile]]:
        """Yield pages of files from all accounts. Raises `SourceUnavailableError`.

        Files remain in the source after they have been compared, so there may be many.
        """
        ...

    def open(self, file: SourceFile) -> AbstractAsyncContextManager[Path]:
        """Make a file available at a local path. Raises `SourceUnavailableError`."""
        ...

    async def close(self) -> None: ...


class FolderSource:
    """A local folder: `<folder>/<account>/<file>`."""

    name = "folder"

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    async def walk_files(self) -> AsyncGenerator[list[SourceFile]]:
        try:
            paths = await asyncio.to_thread(self._list_paths)
        except OSError as error:
            raise SourceUnavailableError(error.strerror or type(error).__name__) from error
        for start in range(0, len(paths), _PAGE_FILES):
            page = await asyncio.to_thread(self._stat_files, paths[start : start + _PAGE_FILES])
            if page:
                yield page

    @asynccontextmanager
    async def open(self, file: SourceFile) -> AsyncGenerator[Path]:
        yield self._folder / str(file.account_id) / file.name

    async def close(self) -> None:
        pass

    def _list_paths(self) -> list[tuple[int, Path]]:
        """List candidate files as `(account_id, path)` pairs."""
        return [
            (account_id, path)
            for account in sorted(self._folder.iterdir())
            if (account_id := parse_account_id(account.name)) is not None and account.is_dir()
            for path in sorted(account.iterdir())
            if is_file_name(path.name)
        ]

    def _stat_files(self, paths: Sequence[tuple[int, Path]]) -> list[SourceFile]:
        """Return the regular files among `paths`. Files that no longer exist are skipped."""
        files: list[SourceFile] = []
        for account_id, path in paths:
            try:
                status = path.stat()
            except OSError:
                continue
            if S_ISREG(status.st_mode):
                version = f"{status.st_size}-{status.st_mtime_ns}"
                files.append(
                    SourceFile(
                        source=self.name, account_id=account_id, name=path.name, version=version
                    )
                )
        return files


def is_file_name(name: str) -> bool:
    return (
        0 < len(name) <= _NAME_MAX
        and name.isprintable()
        and not name.startswith(".")
        and not name.lower().endswith(_PARTIAL_SUFFIXES)
    )


def parse_account_id(name: str) -> int | None:
    """Return the account id in a folder name; None if the folder does not belong to an account."""
    if name.isascii() and name.isdecimal() and len(name) <= _ACCOUNT_DIGITS_MAX:
        return int(name)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Credentials:
    """An access key with permission to list and read the bucket."""

    region: str
    key_id: str
    secret_key: str = field(repr=False)


def encode_canonical_query(query: Mapping[str, str]) -> str:
    """Encode a query in canonical form. The request must be signed and sent with this encoding."""
    pairs = sorted((quote(name, safe=""), quote(value, safe="")) for name, value in query.items())
    return "&".join(f"{name}={value}" for name, value in pairs)


def sign_get(
    credentials: S3Credentials,
    *,
    host: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    at: datetime,
) -> dict[str, str]:
    """Return `headers` plus the headers that sign the request.

    `host` includes the port unless it is the scheme's default. `path` must be percent-encoded
    exactly as it is sent. `at` must be in UTC.
    """
    timestamp = at.strftime("%Y%m%dT%H%M%SZ")
    amz_headers = {"x-amz-content-sha256": _EMPTY_SHA256, "x-amz-date": timestamp}
    signed_headers = {name.lower(): value.strip() for name, value in headers.items()}
    signed_headers |= {"host": host} | amz_headers
    names = ";".join(sorted(signed_headers))
    lines = "".join(f"{name}:{signed_headers[name]}\n" for name in sorted(signed_headers))
    request = f"GET\n{path}\n{encode_canonical_query(query)}\n{lines}\n{names}\n{_EMPTY_SHA256}"
    scope = f"{timestamp[:8]}/{credentials.region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{credentials.secret_key}".encode()
    for scope_part in scope.split("/"):
        key = hmac.digest(key, scope_part.encode(), "sha256")
    signature = hmac.digest(
        key, f"{_ALGORITHM}\n{timestamp}\n{scope}\n{digest}".encode(), "sha256"
    ).hex()
    authorization = (
        f"{_ALGORITHM} Credential={credentials.key_id}/{scope},"
        f"SignedHeaders={names},Signature={signature}"
    )
    return {**headers, **amz_headers, "Authorization": authorization}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    etags: dict[str, str]  # ETags by key
    next_token: str | None


class S3Source:
    """A bucket with a path-style URL: `https://host/bucket`, optionally followed by a prefix."""

    name = "s3"

    def __init__(
        self, url: str, credentials: S3Credentials, tls: ssl.SSLContext | None = None
    ) -> None:
        parsed_url = urlsplit(url)
        bucket, _, prefix = unquote(parsed_url.path.strip("/")).partition("/")
        self._origin = f"{parsed_url.scheme}://{parsed_url.netloc}"
        self._host = parsed_url.netloc
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._credentials = credentials
        self._session = HttpSession(
            tls, connect_timeout_s=_CONNECT_TIMEOUT_S, read_timeout_s=_READ_TIMEOUT_S
        )

    async def walk_files(self) -> AsyncGenerator[list[SourceFile]]:
        # Keys may contain characters that are not allowed in XML.
        query = {"list-type": "2", "encoding-type": "url", "prefix": self._prefix}
        while True:
            page = _parse_page(await self._get_page(query))
            candidates = (self._to_source_file(key, etag) for key, etag in page.etags.items())
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
            # If the file has been overwritten, the tag no longer matches. The next poll retries.
            async with self._get(key, {}, {"If-Match": file.version}) as response:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    size += len(chunk)
                    if size > _FILE_BYTES_MAX:
                        raise SourceUnavailableError("the file is too large")
                    await asyncio.to_thread(copy.write, chunk)
            copy.flush()
            yield Path(copy.name)

    async def close(self) -> None:
        await self._session.close()

    def _to_source_file(self, key: str, etag: str) -> SourceFile | None:
        folder, _, name = key.removeprefix(self._prefix).partition("/")
        account_id = parse_account_id(folder)
        if account_id is None or "/" in name or not is_file_name(name):
            return None
        return SourceFile(source=self.name, account_id=account_id, name=name, version=etag)

    async def _get_page(self, query: Mapping[str, str]) -> bytes:
        body = bytearray()
        async with self._get("", query, {}) as response:
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                body += chunk
                if len(body) > _LIST_BYTES_MAX:
                    raise SourceUnavailableError("the list is too large")
        return bytes(body)

    @asynccontextmanager
    async def _get(
        self, key: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        path = "/" + quote(f"{self._bucket}/{key}" if key else self._bucket, safe="/-_.~")
        signed_headers = sign_get(
            self._credentials,
            host=self._host,
            path=path,
            query=query,
            headers=headers,
            at=datetime.now(UTC),
        )
        url = f"{self._origin}{path}" + (f"?{encode_canonical_query(query)}" if query else "")
        release_slot()
        try:
            async with self._session.open().get(
                make_exact_url(url), headers=signed_headers, allow_redirects=False
            ) as response:
                if response.status != _OK:
                    raise SourceUnavailableError(f"the store returned status {response.status}")
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            # Report only the class, because the message may contain the URL.
            raise SourceUnavailableError(type(error).__name__) from error


def open_s3_source(settings: Settings) -> S3Source:
    credentials = S3Credentials(
        region=settings.settlement_s3_region,
        key_id=settings.settlement_s3_key_id,
        secret_key=settings.settlement_s3_secret_key.get_secret_value(),
    )
    return S3Source(settings.settlement_s3_url, credentials, settings.client_tls)


def _parse_page(body: bytes) -> _Page:
    try:
        # The response is from the operator's own store, and is limited in size. Expat rejects
        # entity bombs.
        root = ET.fromstring(body)  # noqa: S314
    except ET.ParseError as error:
        raise SourceUnavailableError("the list is not valid XML") from error
    if root.tag.rpartition("}")[2] != "ListBucketResult":
        raise SourceUnavailableError("the response is not a bucket listing")
    namespace = root.tag.removesuffix("ListBucketResult")
    is_encoded = root.findtext(f"{namespace}EncodingType") == "url"  # some stores cannot encode
    etags = dict[str, str]()
    for item in root.findall(f"{namespace}Contents"):
        key = item.findtext(f"{namespace}Key") or ""
        etags[unquote_plus(key) if is_encoded else key] = item.findtext(f"{namespace}ETag") or ""
    return _Page(etags=etags, next_token=root.findtext(f"{namespace}NextContinuationToken"))
