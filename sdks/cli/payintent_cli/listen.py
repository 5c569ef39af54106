"""`payintent-cli listen`: forward events from the feed to your server as signed webhooks."""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import httpx
from payintent_sdk.errors import ApiError, NoAnswerError

from payintent_cli.feed import Entry, Feed, pause_s
from payintent_cli.keys import Access, state_folder, write_privately
from payintent_cli.signing import new_secret, read_secret, signed_headers
from payintent_cli.targets import exact_target, is_untrusted, tls_context

_WAIT_S = 25  # long poll; the service's maximum
_TIMEOUT_S = 15.0  # for each delivery, as in the service
_RETRY_MAX_S = 30.0
_OK, _REDIRECTS, _GONE = 200, 300, 410


@dataclass(frozen=True, kw_only=True)
class Listening:
    """The options of `listen`."""

    forward_to: str
    insecure: bool  # accept any certificate from `forward_to`
    types: list[str] | None
    resume: bool
    tries: int


def listen(access: Access, wanted: Listening) -> None:
    """Forward new events, or all events since the last listener ended, until Ctrl-C."""
    given = os.environ.get("PAYINTENT_WEBHOOK_SECRET", "").strip()
    secret = given or new_secret()
    key = read_secret(secret)
    cursor = _StoredCursor(access, wanted)
    tls = tls_context(insecure=wanted.insecure)
    with Feed(access) as feed, httpx.Client(timeout=_TIMEOUT_S, verify=tls) as http:
        after = (cursor.read() if wanted.resume else None) or feed.newest()
        cursor.store(after)
        if not given:
            print(f"webhook secret of this listener: {secret}", flush=True)
        print(f"forwarding events to {wanted.forward_to}; press Ctrl-C to stop", flush=True)
        forwarder = _Forwarder(http, key, wanted)
        while True:
            try:
                page = feed.read(after, wait=_WAIT_S, types=wanted.types)
            except (NoAnswerError, ApiError) as error:
                pause = pause_s(error)
                if pause is None:
                    raise
                print(f"{_now()}  the service is unavailable ({error}); retrying", flush=True)
                time.sleep(pause)
                continue
            for entry in page.entries:
                forwarder.forward(entry)
            after = page.after
            cursor.store(after)


class _Forwarder:
    """Delivers events to a URL, one at a time."""

    def __init__(self, http: httpx.Client, key: bytes, wanted: Listening) -> None:
        self._http = http
        self._key = key
        self._wanted = wanted

    def forward(self, entry: Entry) -> None:
        """Deliver an event with retries and exponential backoff, and print each attempt."""
        for attempt in range(1, self._wanted.tries + 1):
            began = time.monotonic()
            status = self._send(entry)
            took_ms = round((time.monotonic() - began) * 1000)
            print(f"{_now()}  {_line(entry)}  {status}  {took_ms} ms", flush=True)
            if isinstance(status, int) and (_OK <= status < _REDIRECTS or status == _GONE):
                return
            if attempt < self._wanted.tries:
                time.sleep(min(2.0 ** (attempt - 1), _RETRY_MAX_S))
        print(
            f"{_now()}  {_line(entry)}  not delivered (attempts: {self._wanted.tries})", flush=True
        )

    def _send(self, entry: Entry) -> int | str:
        """Send an event once. Return the status, or the reason why there was no response."""
        headers = signed_headers(self._key, entry.id, int(time.time()), entry.body)
        try:
            url = self._wanted.forward_to
            with self._http.stream(
                "POST",
                url,
                content=entry.body,
                headers=headers,
                extensions=exact_target(url),
            ) as answer:
                return answer.status_code
        except httpx.TimeoutException:
            return "no response in time"
        except httpx.TransportError as error:
            hint = "; --insecure accepts any certificate" if is_untrusted(error) else ""
            return f"no response ({error}){hint}"


class _StoredCursor:
    """A listener's feed cursor for `--resume`. Each key, URL and set of event types has its own."""

    def __init__(self, access: Access, wanted: Listening) -> None:
        identity = json.dumps([access.base_url, access.key, wanted.forward_to, wanted.types])
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._file: Path = state_folder() / f"listen-{digest}"
        self._stored: str | None = None

    def read(self) -> str | None:
        return self._file.read_text() if self._file.exists() else None

    def store(self, after: str) -> None:
        if after != self._stored:
            write_privately(self._file, after)
            self._stored = after


def _line(entry: Entry) -> str:
    return f"{entry.event.type}  {entry.payment_id}"


def _now() -> str:
    return time.strftime("%H:%M:%S")
