"""Clients generated from the contract by third-party tools compile and work."""

import asyncio
import json

import pytest

from tests.clients.expected_results import check_what_was_done
from tests.clients.generate import (
    PYTHON,
    basedpyright,
    node,
    python_client,
    run,
    typescript_client,
)
from tools.openapi.check import command

pytestmark = [pytest.mark.timeout(310), pytest.mark.long]


async def test_a_client_from_openapi_python_client_covers_every_merchant_task(
    uses: list[str],
) -> None:
    folder = await asyncio.to_thread(python_client)
    output = await asyncio.to_thread(run, PYTHON, "use_python.py", *uses, folder=folder)
    check_what_was_done(json.loads(output))


async def test_a_client_from_openapi_typescript_covers_every_merchant_task(
    uses: list[str],
) -> None:
    folder = await asyncio.to_thread(typescript_client)
    output = await asyncio.to_thread(run, node(), "use_typescript.mts", *uses, folder=folder)
    check_what_was_done(json.loads(output))


def test_a_client_from_openapi_python_client_type_checks() -> None:
    run(basedpyright(), "--level", "error", "--pythonpath", PYTHON, folder=python_client())


def test_a_client_from_openapi_typescript_compiles_in_strict_mode() -> None:
    run(*command("typescript/bin/tsc", "-p", "tsconfig.json"), folder=typescript_client())
