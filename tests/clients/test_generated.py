"""Clients that others' generators make of the contract compile, and work against the service."""

import asyncio
import json
from typing import Any

import pytest

from payintent.domain.fraud import RuleKind
from payintent.operation.fraud import AddFraudRule
from tests.api.refunding import paid
from tests.clients.making import (
    PYTHON,
    basedpyright,
    node,
    python_client,
    run,
    typescript_client,
)
from tests.support.world import Api
from tools.openapi.check import command

pytestmark = pytest.mark.timeout(310)  # generators and compilers, on a busy machine
_DENIED = "buyer-99"


@pytest.fixture
async def uses(api: Api) -> list[str]:
    """What a program is told: the service, a key, a payment to refund and a buyer to deny."""
    done = await paid(api)
    await api.world.perform(AddFraudRule(kind=RuleKind.PAYER, value=_DENIED))
    return [api.base, api.world.api_key, done.json["id"], _DENIED]


def _is_what_was_done(api: Api, saw: dict[str, Any]) -> None:
    assert saw == {
        "created": saw["created"],
        "denied": "PAYER_BLOCKED",
        "amount": "1590.00",
        "order": "A-1009",
        "listed": [saw["created"]],
        "cancelled": "cancelled",
        "again": "INVALID_PAYMENT_STATE",
        "refund": saw["refund"],
        "refunded": "90.00",
    }


async def test_a_client_of_openapi_python_client_does_all_that_a_merchant_does(
    api: Api, uses: list[str]
) -> None:
    folder = await asyncio.to_thread(python_client)
    told = await asyncio.to_thread(run, PYTHON, "use_python.py", *uses, folder=folder)
    _is_what_was_done(api, json.loads(told))


async def test_a_client_of_openapi_typescript_does_all_that_a_merchant_does(
    api: Api, uses: list[str]
) -> None:
    folder = await asyncio.to_thread(typescript_client)
    told = await asyncio.to_thread(run, node(), "use_typescript.mts", *uses, folder=folder)
    _is_what_was_done(api, json.loads(told))


def test_a_client_of_openapi_python_client_has_its_types_right() -> None:
    run(basedpyright(), "--level", "error", "--pythonpath", PYTHON, folder=python_client())


def test_a_client_of_openapi_typescript_compiles_as_strictly_as_can_be() -> None:
    run(*command("typescript/bin/tsc", "-p", "tsconfig.json"), folder=typescript_client())
