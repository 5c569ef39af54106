"""Connections of a client, separate for each process and event loop.

After a fork, parent and child share their sockets, and each could read the response to the
other's request. Connections work only in the event loop that opened them.

The first request of a `Client` imports nothing. If a process forks while a thread is importing a
module, the import lock stays held in the child, which then waits for the lock forever.
"""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401  # pyright: ignore[reportUnusedImport]  # by getaddrinfo
import os
from typing import Any

import httpx

from payintent_sdk.credentials import read_api_key, read_base_url


class Connections:
    """The connections of each process."""

    def __init__(self, api_key: str, base_url: str, user_agent: str) -> None:
        self._settings = _settings(api_key, base_url, user_agent)
        self._by_process: dict[int, httpx.Client] = {}
        self._is_closed = False
        self.current()

    def current(self) -> httpx.Client:
        """Return the connections of this process."""
        _check_open(self._is_closed)
        process = os.getpid()
        http = self._by_process.get(process)
        if http is not None:
            return http
        # No lock, because a thread stopped by the fork would hold it forever.
        opened = httpx.Client(**self._settings)
        http = self._by_process.setdefault(process, opened)
        if http is not opened:
            opened.close()
        for other in [item for item in self._by_process if item != process]:
            # Dropped instead of closed, because its locks may be held. Garbage collection closes
            # its sockets in this process; they stay open in the other process.
            self._by_process.pop(other, None)
        return http

    def close(self) -> None:
        """Close the connections of this process."""
        self._is_closed = True
        http = self._by_process.pop(os.getpid(), None)
        self._by_process.clear()
        if http is not None:
            http.close()


class AsyncConnections:
    """The connections of each event loop in each process."""

    def __init__(self, api_key: str, base_url: str, user_agent: str) -> None:
        self._settings = _settings(api_key, base_url, user_agent)
        self._by_loop: dict[tuple[int, asyncio.AbstractEventLoop], httpx.AsyncClient] = {}
        self._is_closed = False

    def current(self) -> httpx.AsyncClient:
        """Return the connections of the running event loop."""
        _check_open(self._is_closed)
        key = (os.getpid(), asyncio.get_running_loop())
        http = self._by_loop.get(key)
        if http is None:
            self._forget_ended(key[0])
            http = self._by_loop[key] = httpx.AsyncClient(**self._settings)
        return http

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        self._is_closed = True
        http = self._by_loop.pop((os.getpid(), asyncio.get_running_loop()), None)
        self._by_loop.clear()
        if http is not None:
            await http.aclose()

    def _forget_ended(self, process: int) -> None:
        """Drop connections whose loop is closed or belongs to a different process."""
        for key in list(self._by_loop):
            if key[0] != process or key[1].is_closed():
                self._by_loop.pop(key, None)


def _check_open(is_closed: bool) -> None:
    if is_closed:
        raise RuntimeError("the client is closed")


def _settings(api_key: str, base_url: str, user_agent: str) -> dict[str, Any]:
    """Return the arguments for an `httpx` client. Raises `ValueError` if one is invalid."""
    return {
        "base_url": read_base_url(base_url),
        "headers": {"Authorization": f"Bearer {read_api_key(api_key)}", "User-Agent": user_agent},
        "follow_redirects": False,  # never send the key to a different host
        "verify": httpx.create_ssl_context(),  # slow to create
    }
