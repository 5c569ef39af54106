"""A cache of merchants' pictures, which are fetched when a browser first requests them.

The name of a picture contains its URL, a pseudonym of its merchant, and our signature. Thus only
signed URLs are fetched, every process can serve the picture, and merchants share the concurrent
fetches fairly.
"""

import asyncio
import hmac
import ssl
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from payintent.encryption import Encryption
from payintent.log import get_logger
from payintent.pictures.errors import NoPictureError
from payintent.pictures.fair_turns import FairTurns
from payintent.slot import release_slot
from payintent.webhooks.egress import EgressRules

if TYPE_CHECKING:
    from payintent.pictures.fetch import PictureFetcher

CACHED_BYTES_MAX = 8 * 1024 * 1024
CACHED_MAX = 2_000
FRESH_S = 3_600.0
FAILED_S = 300.0
#: The time limit of a request, including the queue.
REQUEST_S = 5.0
QUEUE_S = 2.0  # the rest is for the fetch
FETCHES_MAX = 8
FETCHES_PER_MERCHANT_MAX = 2
WAITING_MAX = 64  # pictures that are being fetched or queued
WAITING_PER_MERCHANT_MAX = 16
WAITERS_PER_PICTURE_MAX = 32
_SIGNATURE_BYTES = 15
_SIGNATURE_CHARS = 20  # of base64
_OWNER_BYTES = 6
_OWNER_CHARS = 8  # of base64
_CONTEXT = "picture:"
_OWNER = "picture owner:"
_log = get_logger("pictures")


@dataclass(frozen=True, slots=True)
class PictureSource:
    """The URL of a picture, and a pseudonym of its merchant for fair queueing."""

    url: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    content: bytes | None  # None: the picture was unavailable
    until_s: float


@dataclass(slots=True)
class _Fetch:
    owner: str
    task: asyncio.Task[bytes | None]
    waiters: int = 0


class PictureCache:
    """Pictures by URL; concurrent requests for a picture share its fetch."""

    def __init__(
        self, encryption: Encryption, rules: EgressRules, tls: ssl.SSLContext | None = None
    ) -> None:
        self._encryption = encryption
        self._rules = rules
        self._tls = tls
        self._fetcher: PictureFetcher | None = None
        self._entries: OrderedDict[str, _CacheEntry] = OrderedDict()
        self.cached_bytes = 0
        self._fetching: dict[str, _Fetch] = {}
        self._turns = FairTurns(FETCHES_MAX, FETCHES_PER_MERCHANT_MAX)
        self._decoding = asyncio.Semaphore(1)  # decoding a large picture needs much memory

    def name_of(self, url: str, merchant_id: int) -> str:
        """Return the signed name under which we serve a merchant's picture."""
        owner = _base64(self._encryption.digest(f"{_OWNER}{merchant_id}")[:_OWNER_BYTES])
        return self._signature(owner, url) + owner + _base64(url.encode())

    def source_of(self, name: str) -> PictureSource | None:
        """Return the source of a picture; None if the signature of the name is invalid."""
        signature, rest = name[:_SIGNATURE_CHARS], name[_SIGNATURE_CHARS:]
        owner, encoded = rest[:_OWNER_CHARS], rest[_OWNER_CHARS:]
        try:
            url = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            is_valid = hmac.compare_digest(self._signature(owner, url), signature)
        except (ValueError, TypeError):
            return None
        return PictureSource(url, owner) if is_valid else None

    def has_failed(self, url: str) -> bool:
        """Return whether a recent fetch of the picture failed."""
        entry = self._entries.get(url)
        return entry is not None and entry.content is None and entry.until_s > monotonic()

    async def get(self, source: PictureSource) -> bytes | None:
        """Return a picture; None if it cannot be fetched within `REQUEST_S`.

        A waiting request holds no slot, and the number of waiting requests is limited.
        """
        entry = self._entries.get(source.url)
        if entry is not None and entry.until_s > monotonic():
            self._entries.move_to_end(source.url)
            return entry.content
        fetch = self._fetching.get(source.url) or self._start_fetch(source)
        if fetch is None or fetch.waiters >= WAITERS_PER_PICTURE_MAX:
            return None
        release_slot()
        fetch.waiters += 1
        try:
            async with asyncio.timeout(REQUEST_S):
                return await asyncio.shield(fetch.task)
        except TimeoutError:
            return None
        finally:
            fetch.waiters -= 1

    async def close(self) -> None:
        tasks = [fetch.task for fetch in self._fetching.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._fetcher is not None:
            await self._fetcher.close()

    def _start_fetch(self, source: PictureSource) -> _Fetch | None:
        """Start a fetch; return None if too many are waiting, in total or of the merchant."""
        of_owner = sum(fetch.owner == source.owner for fetch in self._fetching.values())
        if len(self._fetching) >= WAITING_MAX or of_owner >= WAITING_PER_MERCHANT_MAX:
            return None
        fetch = _Fetch(source.owner, asyncio.create_task(self._fetch(source)))
        self._fetching[source.url] = fetch
        fetch.task.add_done_callback(lambda _: self._fetching.pop(source.url, None))
        return fetch

    async def _fetch(self, source: PictureSource) -> bytes | None:
        try:
            async with self._turns.turn(source.owner, QUEUE_S):
                content = await self._load(source.url)
        except TimeoutError:  # it says nothing about the picture, so do not cache it
            return None
        self._store(source.url, content)
        return content

    async def _load(self, url: str) -> bytes | None:
        try:
            original = await self._open_fetcher().fetch(url)
            async with self._decoding:
                return await asyncio.to_thread(_encode, original)
        except NoPictureError as error:
            _log.warning("picture_unavailable", host=urlsplit(url).hostname, reason=str(error))
            return None

    def _open_fetcher(self) -> "PictureFetcher":
        if self._fetcher is None:
            from payintent.pictures.fetch import PictureFetcher  # few processes serve pictures

            self._fetcher = PictureFetcher(self._rules, self._tls)
        return self._fetcher

    def _store(self, url: str, content: bytes | None) -> None:
        self._drop(url)
        self._entries[url] = _CacheEntry(
            content, monotonic() + (FAILED_S if content is None else FRESH_S)
        )
        self.cached_bytes += len(content or b"")
        while self.cached_bytes > CACHED_BYTES_MAX or len(self._entries) > CACHED_MAX:
            self._drop(next(iter(self._entries)))

    def _drop(self, url: str) -> None:
        entry = self._entries.pop(url, None)
        self.cached_bytes -= len(entry.content or b"") if entry else 0

    def _signature(self, owner: str, url: str) -> str:
        return _base64(self._encryption.digest(f"{_CONTEXT}{owner}:{url}")[:_SIGNATURE_BYTES])


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


def _encode(content: bytes) -> bytes:
    from payintent.pictures.encode import encode_picture

    return encode_picture(content)
