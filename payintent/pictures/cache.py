"""The pictures of a process: each fetched when a browser first wants it, kept while there is room.

A picture's name holds its address and our signature, so that no other address is ever fetched, and
any process can serve it.
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
from payintent.webhooks.egress import EgressRules

if TYPE_CHECKING:
    from payintent.pictures.fetch import PictureFetcher

KEPT_BYTES_MAX = 8 * 1024 * 1024
KEPT_MAX = 2_000
FRESH_S = 3_600.0
FAILED_S = 300.0
FETCHES_MAX = 4
WAITING_MAX = 32
_MARK_BYTES = 15
_MARK_CHARS = 20  # of base64
_CONTEXT = "picture:"
_log = get_logger("pictures")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A picture, or None where there was none to be had, and until when that is so."""

    content: bytes | None
    until_s: float


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
        self._fetching: dict[str, asyncio.Task[bytes | None]] = {}
        self._fetches = asyncio.Semaphore(FETCHES_MAX)
        self._decoding = asyncio.Semaphore(1)  # a large picture takes memory

    def name_of(self, url: str) -> str:
        """Return the signed name of a picture, which is part of its own address here."""
        return self._mark(url) + urlsafe_b64encode(url.encode()).decode().rstrip("=")

    def url_of(self, name: str) -> str | None:
        """Return the address that a name was made of; None for a name that is not ours."""
        mark, encoded = name[:_MARK_CHARS], name[_MARK_CHARS:]
        try:
            url = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            is_ours = hmac.compare_digest(self._mark(url), mark)
        except (ValueError, TypeError):
            return None
        return url if is_ours else None

    def has_failed(self, url: str) -> bool:
        """Tell whether a picture could not be had a short time ago."""
        kept = self._kept.get(url)
        return kept is not None and kept.content is None and kept.until_s > monotonic()

    async def get(self, url: str) -> bytes | None:
        """Return a picture, fetched where it is not kept; None where it cannot be had."""
        kept = self._kept.get(url)
        if kept is not None and kept.until_s > monotonic():
            self._kept.move_to_end(url)
            return kept.content
        fetching = self._fetching.get(url)
        if fetching is None:
            if len(self._fetching) >= WAITING_MAX:
                return None
            fetching = asyncio.create_task(self._fetch(url))
            self._fetching[url] = fetching
            fetching.add_done_callback(lambda _: self._fetching.pop(url, None))
        return await asyncio.shield(fetching)

    async def close(self) -> None:
        """End the fetches, and the client they use."""
        fetching = list(self._fetching.values())
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
        if self._fetcher is not None:
            await self._fetcher.close()

    async def _fetch(self, url: str) -> bytes | None:
        content = None
        try:
            async with self._fetches:
                found = await self._client().fetch(url)
            async with self._decoding:
                content = await asyncio.to_thread(_encoded, found)
        except NoPictureError as error:
            _log.warning("picture_unavailable", host=urlsplit(url).hostname, reason=str(error))
        self._keep(url, content)
        return content

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

    def _mark(self, url: str) -> str:
        digest = self._encryption.digest(_CONTEXT + url)
        return urlsafe_b64encode(digest[:_MARK_BYTES]).decode()


def _encoded(content: bytes) -> bytes:
    from payintent.pictures.encode import encode_picture

    return encode_picture(content)
