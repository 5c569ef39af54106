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

from tests.refunds.requests import create_paid
from tests.sdks.python_sdk import CLI_PROJECT, HERE, PYTHON, run_program, unpack_package
from tests.support.world import Api

pytestmark = pytest.mark.full


def run_scenario(scenario: str, api: Api) -> list[bool | str]:
    path = f"{unpack_package()}{os.pathsep}{unpack_package(CLI_PROJECT)}"
    printed = run_program(
        "use_forks.py",
        scenario,
        api.base,
        api.world.api_key,
        PYTHONPATH=path,
        PYTHONWARNINGS="default",
    )
    return json.loads(printed)


@pytest.mark.parametrize(
    ("scenario", "count"),
    [
        ("fork", 150),
        ("multiprocessing", 125),
        ("threads", 95),
        ("async fork", 125),
        ("loops", 150),
    ],
)
async def test_every_response_belongs_to_its_request(api: Api, scenario: str, count: int) -> None:
    results = await asyncio.to_thread(run_scenario, scenario, api)
    assert [result for result in results if result is not True] == []
    assert len(results) == count


def test_the_first_request_does_not_import_modules() -> None:
    assert json.loads(run_program("first_request.py")) == []


async def test_the_feed_reader_of_the_cli_can_be_forked(api: Api) -> None:
    for _ in range(4):
        await create_paid(api)
    results = await asyncio.to_thread(run_scenario, "feed", api)
    assert results == [True] * 100


@contextmanager
def gunicorn(api: Api) -> Iterator[str]:
    """Run the preloaded shop on an open socket; requests wait until its workers are ready."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=200)
    options = ("--preload", "--workers", "4", "--no-control-socket")
    bind = ("--bind", f"fd://{listener.fileno()}")
    path = {"PYTHONPATH": f"{unpack_package()}{os.pathsep}{HERE}"}
    shop = {"SHOP_KEY": api.world.api_key, "SHOP_BASE": api.base}
    process = subprocess.Popen(
        [PYTHON, "-m", "gunicorn", *options, *bind, "shop_preloaded:app"],
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

            orders = await asyncio.gather(*(buy(number) for number in range(200)))
    assert [(name, order) for _, name, order in orders if name != order] == []
    assert len({worker for worker, _, _ in orders}) > 1
