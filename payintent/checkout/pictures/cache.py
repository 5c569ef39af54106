"""A cache of merchants' images, which are fetched when a browser first requests them.

An image's name contains its URL, a pseudonym of the merchant, and our signature. Therefore, only
signed URLs are fetched, any process can serve an image without a database query, and fetches are
shared fairly among merchants.
"""

import asyncio
import hmac
import ssl
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from payintent.http.egress import EgressRules
from payintent.runtime.encryption import Encryption
from payintent.runtime.log import get_logger
from payintent.runtime.waiting import release_slot

if TYPE_CHECKING:
    from payintent.checkout.pictures.fetch import PictureFetcher


CACHED_BYTES_MAX = 8 * 1024 * 1024
CACHED_MAX = 2_000
FRESH_S = 3_600.0
FAILED_S = 300.0
#: Time limit of a request, including the time in the queue.
REQUEST_S = 5.0
QUEUE_S = 2.0  # the remaining time is for the fetch
FETCHES_MAX = 8
FETCHES_PER_MERCHANT_MAX = 2
WAITING_MAX = 64  # images being fetched or queued
WAITING_PER_MERCHANT_MAX = 16
WAITERS_PER_PICTURE_MAX = 32
_SIGNATURE_BYTES = 15
_SIGNATURE_CHARS = 20  # in base64
_OWNER_BYTES = 6
_OWNER_CHARS = 8  # in base64
_SIGNATURE_CONTEXT = "picture:"
_OWNER_CONTEXT = "picture owner:"
_log = get_logger("pictures")


class FairSemaphore:
    """A semaphore that is shared fairly among parties.

    It has `total_max` permits, and one party may hold up to `party_max` of them. Free permits go
    to waiting parties in rotation, regardless of how many requests each party has queued.
    """

    def __init__(self, total_max: int, party_max: int) -> None:
        self._total_max = total_max
        self._party_max = party_max
        self._active: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def hold(self, party: str, wait_s: float) -> AsyncGenerator[None]:
        """Hold a permit until the block exits; raise `TimeoutError` if none is free in time."""
        await self._wait(party, wait_s)
        try:
            yield
        finally:
            self._active[party] -= 1
            if not self._active[party]:
                del self._active[party]
            self._grant()

    async def _wait(self, party: str, wait_s: float) -> None:
        permit = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(party, deque()).append(permit)
        self._grant()
        try:
            async with asyncio.timeout(wait_s):
                await permit
        except BaseException:
            if permit.done() and not permit.cancelled():  # granted just as the timeout fired
                self._active[party] -= 1
                self._grant()
            raise

    def _grant(self) -> None:
        """Grant free permits to the parties that have waited longest."""
        while self._active.total() < self._total_max and (party := self._next_party()) is not None:
            permit = self._waiting[party].popleft()
            if self._waiting[party]:
                self._waiting.move_to_end(party)
            else:
                del self._waiting[party]
            if not permit.done():
                self._active[party] += 1
                permit.set_result(None)

    def _next_party(self) -> str | None:
        eligible = (name for name in self._waiting if self._active[name] < self._party_max)
        return next(eligible, None)


@dataclass(frozen=True, slots=True)
class PictureSource:
    """An image's URL, and a pseudonym of its merchant for fair queueing."""

    url: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    content: bytes | None  # None: the image was unavailable
    expires_at_s: float


@dataclass(slots=True)
class _Fetch:
    owner: str
    task: asyncio.Task[bytes | None]
    waiters: int = 0

    async def wait(self) -> bytes | None:
        self.waiters += 1
        try:
            async with asyncio.timeout(REQUEST_S):
                return await asyncio.shield(self.task)
        except TimeoutError:
            return None
        finally:
            self.waiters -= 1


class PictureCache:
    """A cache of images by URL. Concurrent requests for an image share one fetch."""

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
        self._permits = FairSemaphore(FETCHES_MAX, FETCHES_PER_MERCHANT_MAX)
        self._decoding = asyncio.Semaphore(1)  # decoding a large image takes a lot of memory

    def make_name(self, url: str, merchant_id: int) -> str:
        """Return the signed file name under which we serve a merchant's image."""
        owner = _base64(self._encryption.digest(f"{_OWNER_CONTEXT}{merchant_id}")[:_OWNER_BYTES])
        return self._signature(owner, url) + owner + _base64(url.encode())

    def parse_name(self, name: str) -> PictureSource | None:
        """Return the image's source; None if the name was not signed by us."""
        signature, rest = name[:_SIGNATURE_CHARS], name[_SIGNATURE_CHARS:]
        owner, encoded = rest[:_OWNER_CHARS], rest[_OWNER_CHARS:]
        try:
            url = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            is_valid = hmac.compare_digest(self._signature(owner, url), signature)
        except (ValueError, TypeError):
            return None
        return PictureSource(url, owner) if is_valid else None

    def has_failed(self, url: str) -> bool:
        """Return whether the last fetch failed less than `FAILED_S` ago."""
        entry = self._entries.get(url)
        return entry is not None and entry.content is None and entry.expires_at_s > monotonic()

    async def get(self, source: PictureSource) -> bytes | None:
        """Return an image; None if it cannot be fetched within `REQUEST_S`.

        Requests release their admission slot while they wait, so their number is limited here.
        """
        entry = self._entries.get(source.url)
        if entry is not None and entry.expires_at_s > monotonic():
            self._entries.move_to_end(source.url)
            return entry.content
        fetch = self._fetching.get(source.url) or self._start_fetch(source)
        if fetch is None or fetch.waiters >= WAITERS_PER_PICTURE_MAX:
            return None
        release_slot()
        return await fetch.wait()

    async def close(self) -> None:
        tasks = [fetch.task for fetch in self._fetching.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._fetcher is not None:
            await self._fetcher.close()

    def _start_fetch(self, source: PictureSource) -> _Fetch | None:
        """Start a fetch; return None if too many are pending, in total or for the merchant."""
        owner_fetches = sum(fetch.owner == source.owner for fetch in self._fetching.values())
        if len(self._fetching) >= WAITING_MAX or owner_fetches >= WAITING_PER_MERCHANT_MAX:
            return None
        fetch = _Fetch(source.owner, asyncio.create_task(self._fetch(source)))
        self._fetching[source.url] = fetch
        fetch.task.add_done_callback(lambda _: self._fetching.pop(source.url, None))
        return fetch

    async def _fetch(self, source: PictureSource) -> bytes | None:
        try:
            async with self._permits.hold(source.owner, QUEUE_S):
                content = await self._load(source.url)
        except TimeoutError:  # the queue was too long; do not cache a failure
            return None
        self._store(source.url, content)
        return content

    async def _load(self, url: str) -> bytes | None:
        # Imported here because most processes need neither Pillow nor the HTTP client.
        from payintent.checkout.pictures.fetch import (
            PictureFetcher,
            PictureUnavailableError,
            encode_picture,
        )

        if self._fetcher is None:
            self._fetcher = PictureFetcher(self._rules, self._tls)
        try:
            original = await self._fetcher.fetch(url)
            async with self._decoding:
                return await asyncio.to_thread(encode_picture, original)
        except PictureUnavailableError as error:
            _log.warning("picture_unavailable", host=urlsplit(url).hostname, reason=str(error))
            return None

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
        return _base64(
            self._encryption.digest(f"{_SIGNATURE_CONTEXT}{owner}:{url}")[:_SIGNATURE_BYTES]
        )


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
