"""The pictures of a process: each fetched when a browser first wants it, kept while there is room.

A picture's name holds its address, a mark of its merchant and our signature. So no other address is
ever fetched, any process can serve it, and merchants share fairly in what is fetched at once.
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

KEPT_BYTES_MAX = 8 * 1024 * 1024
KEPT_MAX = 2_000
FRESH_S = 3_600.0
FAILED_S = 300.0
#: A request for a picture takes so long at most, the queue included.
REQUEST_S = 5.0
QUEUE_S = 2.0  # the rest is for fetching it
FETCHES_MAX = 8
FETCHES_PER_MERCHANT_MAX = 2
WAITING_MAX = 64  # pictures that are fetched, or will be
WAITING_PER_MERCHANT_MAX = 16
WAITERS_PER_PICTURE_MAX = 32
_MARK_BYTES = 15
_MARK_CHARS = 20  # of base64
_OWNER_BYTES = 6
_OWNER_CHARS = 8  # of base64
_CONTEXT = "picture:"
_OWNER = "picture owner:"
_log = get_logger("pictures")


@dataclass(frozen=True, slots=True)
class PictureSource:
    """Where a picture is, and a mark of the merchant that shows it: merchants share in fetches."""

    url: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A picture, or None where there was none to be had, and until when that is so."""

    content: bytes | None
    until_s: float


@dataclass(slots=True)
class _Fetch:
    """A picture on its way, and how many requests wait for it."""

    owner: str
    task: asyncio.Task[bytes | None]
    waiters: int = 0


class PictureCache:
    """Pictures by their address; whoever wants the same one waits for the same fetch."""

    def __init__(
        self, encryption: Encryption, rules: EgressRules, tls: ssl.SSLContext | None = None
    ) -> None:
        self._encryption = encryption
        self._rules = rules
        self._tls = tls
        self._fetcher: PictureFetcher | None = None
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.bytes_kept = 0
        self._fetching: dict[str, _Fetch] = {}
        self._turns = FairTurns(FETCHES_MAX, FETCHES_PER_MERCHANT_MAX)
        self._decoding = asyncio.Semaphore(1)  # a large picture takes memory

    def name_of(self, url: str, merchant_id: int) -> str:
        """Return the signed name of a merchant's picture, which is part of its address here."""
        owner = _base64(self._encryption.digest(f"{_OWNER}{merchant_id}")[:_OWNER_BYTES])
        return self._mark(owner, url) + owner + _base64(url.encode())

    def source_of(self, name: str) -> PictureSource | None:
        """Return what a name was made of; None for a name that is not ours."""
        mark, rest = name[:_MARK_CHARS], name[_MARK_CHARS:]
        owner, encoded = rest[:_OWNER_CHARS], rest[_OWNER_CHARS:]
        try:
            url = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            is_ours = hmac.compare_digest(self._mark(owner, url), mark)
        except (ValueError, TypeError):
            return None
        return PictureSource(url, owner) if is_ours else None

    def has_failed(self, url: str) -> bool:
        """Tell whether a picture could not be had a short time ago."""
        kept = self._kept.get(url)
        return kept is not None and kept.content is None and kept.until_s > monotonic()

    async def get(self, source: PictureSource) -> bytes | None:
        """Return a picture, fetched if it is not cached; None if it cannot be had in `REQUEST_S`.

        A request that waits for it holds no slot, and no more wait than the bounds say.
        """
        kept = self._kept.get(source.url)
        if kept is not None and kept.until_s > monotonic():
            self._kept.move_to_end(source.url)
            return kept.content
        fetch = self._fetching.get(source.url) or self._begin(source)
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
        fetching = [fetch.task for fetch in self._fetching.values()]
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
        if self._fetcher is not None:
            await self._fetcher.close()

    def _begin(self, source: PictureSource) -> _Fetch | None:
        """Begin to fetch a picture; None if too many wait already, of all or of its merchant."""
        owned = sum(fetch.owner == source.owner for fetch in self._fetching.values())
        if len(self._fetching) >= WAITING_MAX or owned >= WAITING_PER_MERCHANT_MAX:
            return None
        fetch = _Fetch(source.owner, asyncio.create_task(self._fetch(source)))
        self._fetching[source.url] = fetch
        fetch.task.add_done_callback(lambda _: self._fetching.pop(source.url, None))
        return fetch

    async def _fetch(self, source: PictureSource) -> bytes | None:
        try:
            async with self._turns.turn(source.owner, QUEUE_S):
                content = await self._load(source.url)
        except TimeoutError:  # which says nothing of the picture: the next request tries again
            return None
        self._keep(source.url, content)
        return content

    async def _load(self, url: str) -> bytes | None:
        try:
            found = await self._client().fetch(url)
            async with self._decoding:
                return await asyncio.to_thread(_encoded, found)
        except NoPictureError as error:
            _log.warning("picture_unavailable", host=urlsplit(url).hostname, reason=str(error))
            return None

    def _client(self) -> "PictureFetcher":
        if self._fetcher is None:
            from payintent.pictures.fetch import PictureFetcher  # few processes ever show a picture

            self._fetcher = PictureFetcher(self._rules, self._tls)
        return self._fetcher

    def _keep(self, url: str, content: bytes | None) -> None:
        self._drop(url)
        self._kept[url] = _Kept(content, monotonic() + (FAILED_S if content is None else FRESH_S))
        self.bytes_kept += len(content or b"")
        while self.bytes_kept > KEPT_BYTES_MAX or len(self._kept) > KEPT_MAX:
            self._drop(next(iter(self._kept)))

    def _drop(self, url: str) -> None:
        kept = self._kept.pop(url, None)
        self.bytes_kept -= len(kept.content or b"") if kept else 0

    def _mark(self, owner: str, url: str) -> str:
        return _base64(self._encryption.digest(f"{_CONTEXT}{owner}:{url}")[:_MARK_BYTES])


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


def _encoded(content: bytes) -> bytes:
    from payintent.pictures.encode import encode_picture

    return encode_picture(content)
