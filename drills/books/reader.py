"""Append all merchants' event feeds to journals until the process is killed.

Run it as `python -m drills.books.reader FOLDER`. The folder contains `shops.json` with the API URL
and the keys.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from drills.books.journal import Journal, journal_of

_AGAIN_S = 0.3
_WAIT_S = 5
_OK = 200
_BAD_REQUEST = 400


async def read(http: aiohttp.ClientSession, api_url: str, key: str, journal: Journal) -> None:
    """Append new events of a feed to its journal until the process is killed."""
    after = journal.mend()
    headers = {"Authorization": f"Bearer {key}"}
    while True:
        query = {"limit": "100", "wait": str(_WAIT_S)} | ({"after": after} if after else {})
        try:
            page = await _page(http, f"{api_url}/events", headers, query)
        except (aiohttp.ClientError, TimeoutError):
            page = None
        if page is None:
            await asyncio.sleep(_AGAIN_S)
        elif page["data"]:
            after = page["after"]
            journal.add(after, [entry["id"] for entry in page["data"]])


async def _page(
    http: aiohttp.ClientSession, url: str, headers: dict[str, str], query: dict[str, str]
) -> Any:
    async with http.get(url, headers=headers, params=query) as answer:
        body = await answer.read()
        if answer.status == _BAD_REQUEST:
            raise SystemExit(f"the feed rejects its own `after`: {body[:200]!r}")
        return json.loads(body) if answer.status == _OK else None


async def _main(folder: Path) -> None:
    description = json.loads((folder / "shops.json").read_text())
    timeout = aiohttp.ClientTimeout(total=_WAIT_S + 10)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        aiohttp.ClientSession(timeout=timeout, connector=connector) as http,
        asyncio.TaskGroup() as work,
    ):
        for shop in description["shops"]:
            journal = journal_of(folder, shop["id"])
            work.create_task(read(http, description["api_url"], shop["api_key"], journal))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
