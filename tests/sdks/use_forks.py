"""Use a client after forks and in several event loops; print the results.

Arguments: the scenario, the service's URL, a key. A result is True if the response belongs to the
request, otherwise the unexpected value.
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
EACH = 25  # payments that each worker creates

Result = bool | str


def compare(order_name: str, order_id: object) -> Result:
    return True if order_id == order_name else f"{order_name} got {order_id}"


def create(client: Client, name: str) -> Result:
    metadata = {"order_id": name}
    try:
        payment = client.payments.create(
            amount="1.00", currency="THB", payer_uid="b", metadata=metadata
        )
    except (PayintentError, RuntimeError):
        return traceback.format_exc(limit=-2)
    return compare(name, payment.metadata["order_id"])


async def create_async(client: AsyncClient, name: str) -> Result:
    metadata = {"order_id": name}
    try:
        payment = await client.payments.create(
            amount="1.00", currency="THB", payer_uid="b", metadata=metadata
        )
    except (PayintentError, RuntimeError):
        return traceback.format_exc(limit=-2)
    return compare(name, payment.metadata["order_id"])


def run_in_forks(work: Callable[[str], list[Result]]) -> list[Result]:
    """Run `work` in several forked processes concurrently; return all results."""
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


def create_many(client: Client, name: str) -> list[Result]:
    return [create(client, f"{name}-{number}") for number in range(EACH)]


def by_fork(base: str, key: str) -> list[Result]:
    client = Client(key, base)
    before = create_many(client, "parent")
    after = run_in_forks(lambda name: create_many(client, name))
    return before + after + create_many(client, "parent-again")


def by_feed_reader(base: str, key: str) -> list[Result]:
    """Read parts of different lengths from the feed with the CLI's client."""
    from payintent_cli.feed import Feed
    from payintent_cli.keys import Access

    feed = Feed(Access(key=key, base_url=base))
    feed.newest()

    def read(name: str) -> list[Result]:
        limit = int(name.removeprefix("worker-")) + 1
        try:
            counts = [len(feed.read(None, limit=limit).entries) for _ in range(EACH)]
        except (PayintentError, ValueError):
            return [traceback.format_exc(limit=-2)]
        return [count == limit or f"{limit} got {count}" for count in counts]

    return run_in_forks(read)


def by_multiprocessing(base: str, key: str) -> list[Result]:
    global shared
    shared = Client(key, base)
    before = create_many(shared, "parent")
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        after = pool.map(create_with_shared, [f"task-{number}" for number in range(100)], 5)
    return before + after


def create_with_shared(name: str) -> Result:
    return create(shared, name)


def beside_threads(base: str, key: str) -> list[Result]:
    """Fork repeatedly while threads create payments."""
    client = Client(key, base)
    endings: list[Result] = []
    threads = [
        threading.Thread(
            target=lambda name=f"thread-{n}": endings.extend(create_many(client, name))
        )
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    rounds = [run_in_forks(lambda name: [create(client, name)]) for _ in range(5)]
    for thread in threads:
        thread.join()
    return endings + [ending for some in rounds for ending in some]


def by_async_fork(base: str, key: str) -> list[Result]:
    client = AsyncClient(key, base)

    async def some(name: str) -> list[Result]:
        return await asyncio.gather(
            *(create_async(client, f"{name}-{number}") for number in range(EACH))
        )

    before = asyncio.run(some("parent"))
    after = run_in_forks(lambda name: asyncio.run(some(name)))
    return before + after


def in_another_loop(base: str, key: str) -> list[Result]:
    """Use one client in consecutive event loops, and in loops of concurrent threads."""
    client = AsyncClient(key, base)

    async def some(name: str) -> list[Result]:
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


SCENARIOS = {
    "fork": by_fork,
    "feed": by_feed_reader,
    "multiprocessing": by_multiprocessing,
    "threads": beside_threads,
    "async fork": by_async_fork,
    "loops": in_another_loop,
}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]](*sys.argv[2:])))
