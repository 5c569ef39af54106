"""Sends requests whose whole answer must come in time, though it drips."""

from __future__ import annotations

import asyncio
import time

import httpx

_CONNECT_FIRST_S = 1.0  # so that what was never sent is told from what was not answered


def send(http: httpx.Client, request: httpx.Request, whole_s: float) -> httpx.Response:
    """Send a request and read the whole answer; `httpx.RequestError` where it takes longer."""
    over_at = time.monotonic() + whole_s
    parts: list[bytes] = []
    answer = http.send(request, stream=True)
    try:
        for part in answer.iter_raw():
            parts.append(part)
            if time.monotonic() > over_at:
                raise _too_slow(request, whole_s)
    finally:
        answer.close()
    content = b"".join(parts)
    return httpx.Response(
        answer.status_code, headers=answer.headers, content=content, request=request
    )


async def send_async(
    http: httpx.AsyncClient, request: httpx.Request, whole_s: float
) -> httpx.Response:
    """Send a request as `send` does."""
    try:
        return await asyncio.wait_for(http.send(request), whole_s + _CONNECT_FIRST_S)
    except asyncio.TimeoutError:
        raise _too_slow(request, whole_s) from None


def _too_slow(request: httpx.Request, whole_s: float) -> httpx.ReadTimeout:
    return httpx.ReadTimeout(f"the whole answer took longer than {whole_s:g} s", request=request)
