"""A client works after forks and in new event loops, and never mixes up responses."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import pytest

from tests.refunds.requests import paid
from tests.sdks.python_sdk import CLI_PROJECT, HERE, PYTHON, installed, run_program
from tests.support.world import Api

pytestmark = pytest.mark.full


def endings(how: str, api: Api) -> list[bool | str]:
    path = f"{installed()}{os.pathsep}{installed(CLI_PROJECT)}"
    printed = run_program(
        "use_forks.py", how, api.base, api.world.api_key, PYTHONPATH=path, PYTHONWARNINGS="default"
    )
    return json.loads(printed)


@pytest.mark.parametrize(
    ("how", "count"),
    [
        ("fork", 150),
        ("multiprocessing", 125),
        ("threads", 95),
        ("async fork", 125),
        ("loops", 150),
    ],
)
async def test_every_response_belongs_to_its_request(api: Api, how: str, count: int) -> None:
    came = await asyncio.to_thread(endings, how, api)
    assert [ending for ending in came if ending is not True] == []
    assert len(came) == count


def test_the_first_request_does_not_import_modules() -> None:
    assert json.loads(run_program("first_request.py")) == []


async def test_the_feed_reader_of_the_cli_can_be_forked(api: Api) -> None:
    for _ in range(4):
        await paid(api)
    came = await asyncio.to_thread(endings, "feed", api)
    assert came == [True] * 100


@contextmanager
def gunicorn(api: Api) -> Iterator[str]:
    """Run the preloaded shop on an open socket, which responds once its workers do."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=200)
    words = ("--preload", "--workers", "4", "--no-control-socket")
    bind = ("--bind", f"fd://{listener.fileno()}")
    path = {"PYTHONPATH": f"{installed()}{os.pathsep}{HERE}"}
    shop = {"SHOP_KEY": api.world.api_key, "SHOP_BASE": api.base}
    process = subprocess.Popen(
        [PYTHON, "-m", "gunicorn", *words, *bind, "shop_preloaded:app"],
        env=os.environ | path | shop,
        pass_fds=[listener.fileno()],
    )
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def test_gunicorn_workers_receive_the_payments_that_they_create(api: Api) -> None:
    with gunicorn(api) as url:
        async with aiohttp.ClientSession() as http:

            async def buy(number: int) -> tuple[int, str, str]:
                name = f"order-{number}"
                async with http.get(f"{url}/{name}") as answer:
                    worker, order = await answer.json()
                return worker, name, order

            bought = await asyncio.gather(*(buy(number) for number in range(200)))
    assert [(name, order) for _, name, order in bought if name != order] == []
    assert len({worker for worker, _, _ in bought}) > 1
