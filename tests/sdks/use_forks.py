"""Create payments in processes and event loops that a client outlives; print each result.

Arguments: the method, the service's URL, a key. A result is True if the response belongs to the
request, and otherwise the unexpected value.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable

from payintent_sdk import AsyncClient, Client, PayintentError

WORKERS = 4
EACH = 25  # creates of a worker

Ending = bool | str


def ended(name: str, order_id: object) -> Ending:
    return True if order_id == name else f"{name} got {order_id}"


def create(client: Client, name: str) -> Ending:
    metadata = {"order_id": name}
    try:
        payment = client.payments.create(
            amount="1.00", currency="THB", payer_uid="b", metadata=metadata
        )
    except (PayintentError, RuntimeError):
        return traceback.format_exc(limit=-2)
    return ended(name, payment.metadata["order_id"])


async def create_async(client: AsyncClient, name: str) -> Ending:
    metadata = {"order_id": name}
    try:
        payment = await client.payments.create(
            amount="1.00", currency="THB", payer_uid="b", metadata=metadata
        )
    except (PayintentError, RuntimeError):
        return traceback.format_exc(limit=-2)
    return ended(name, payment.metadata["order_id"])


def forked(work: Callable[[str], list[Ending]]) -> list[Ending]:
    """Run `work` in several forked processes concurrently."""
    pipes: list[int] = []
    for worker in range(WORKERS):
        reader, writer = os.pipe()
        if os.fork() == 0:
            with os.fdopen(writer, "w") as out:
                json.dump(work(f"worker-{worker}"), out)
                out.flush()
                os._exit(0)
        os.close(writer)
        pipes.append(reader)
    endings = [json.load(os.fdopen(reader)) for reader in pipes]
    for _ in pipes:
        os.wait()
    return [ending for some in endings for ending in some]


def creates(client: Client, name: str) -> list[Ending]:
    return [create(client, f"{name}-{number}") for number in range(EACH)]


def by_fork(base: str, key: str) -> list[Ending]:
    client = Client(key, base)
    before = creates(client, "parent")
    after = forked(lambda name: creates(client, name))
    return before + after + creates(client, "parent-again")


def of_feed(base: str, key: str) -> list[Ending]:
    """Read parts of the feed with different lengths, with the CLI's client."""
    from payintent_cli.feed import Feed
    from payintent_cli.keys import Access

    feed = Feed(Access(key=key, base_url=base))
    feed.newest()

    def read(name: str) -> list[Ending]:
        limit = int(name.removeprefix("worker-")) + 1
        try:
            counts = [len(feed.read(None, limit=limit).entries) for _ in range(EACH)]
        except (PayintentError, ValueError):
            return [traceback.format_exc(limit=-2)]
        return [count == limit or f"{limit} got {count}" for count in counts]

    return forked(read)


def by_multiprocessing(base: str, key: str) -> list[Ending]:
    global shared
    shared = Client(key, base)
    before = creates(shared, "parent")
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        after = pool.map(create_with_shared, [f"task-{number}" for number in range(100)], 5)
    return before + after


def create_with_shared(name: str) -> Ending:
    return create(shared, name)


def beside_threads(base: str, key: str) -> list[Ending]:
    """Fork repeatedly while threads are making calls."""
    client = Client(key, base)
    endings: list[Ending] = []
    threads = [
        threading.Thread(target=lambda name=f"thread-{n}": endings.extend(creates(client, name)))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    rounds = [forked(lambda name: [create(client, name)]) for _ in range(5)]
    for thread in threads:
        thread.join()
    return endings + [ending for some in rounds for ending in some]


def by_async_fork(base: str, key: str) -> list[Ending]:
    client = AsyncClient(key, base)

    async def some(name: str) -> list[Ending]:
        return await asyncio.gather(
            *(create_async(client, f"{name}-{number}") for number in range(EACH))
        )

    before = asyncio.run(some("parent"))
    after = forked(lambda name: asyncio.run(some(name)))
    return before + after


def in_another_loop(base: str, key: str) -> list[Ending]:
    """Use one client in consecutive event loops, and in loops of concurrent threads."""
    client = AsyncClient(key, base)

    async def some(name: str) -> list[Ending]:
        return await asyncio.gather(
            *(create_async(client, f"{name}-{number}") for number in range(EACH))
        )

    endings = [ending for n in range(3) for ending in asyncio.run(some(f"loop-{n}"))]
    threads = [
        threading.Thread(target=lambda n=n: endings.extend(asyncio.run(some(f"thread-{n}"))))
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(client.close())
    return endings


HOW = {
    "fork": by_fork,
    "feed": of_feed,
    "multiprocessing": by_multiprocessing,
    "threads": beside_threads,
    "async fork": by_async_fork,
    "loops": in_another_loop,
}

if __name__ == "__main__":
    print(json.dumps(HOW[sys.argv[1]](*sys.argv[2:])))
