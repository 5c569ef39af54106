"""Endpoint URLs contain keys, and never appear in responses, metrics or logs."""

import asyncio
import json
import os
import sys
import traceback
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from payintent.chains.operations import ListChains
from payintent.core.errors import RefusedError
from payintent.onchain.operations import SetChain
from payintent.operators.operation import to_json_value
from payintent.runtime.settings import Settings
from tests.support.contracts import bill, offer_tokens, session_path
from tests.support.patience import PATIENCE_S
from tests.support.world import Api, World, free_port

pytestmark = pytest.mark.full

_PLANTED = "planted-key"
_FAILING = ("native", "ethereum")
# Nobody listens at the first; the second is no address, and its chain is not watched.
_NOBODY, _NONSENSE = f"http://me:{_PLANTED}@127.0.0.1:1/{_PLANTED}", f"ws://{_PLANTED}/{_PLANTED}"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    planted = {"rpc_native": _NOBODY, "rpc_bsc": _NONSENSE, "rpc_ethereum": f"{_NOBODY}, {_NOBODY}"}
    planted |= {"signer_native": _NOBODY, "signer_bsc": _NONSENSE}
    return Settings.model_validate(
        settings.model_dump()
        | {"pepper": settings.pepper, "keyring": settings.keyring}
        | {"database_url": settings.database_url, "chain_watched_s": 60, **planted}
    )


class _Worker:
    """`payintent worker` as operators run it, and its output."""

    def __init__(self, settings: Settings) -> None:
        self.metrics_port = free_port()
        self._env = {
            "PATH": os.environ["PATH"],
            "DATABASE_URL": settings.database_url,
            "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
            "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
            "PAYINTENT_RPC_NATIVE": settings.rpc_native.get_secret_value(),
            "PAYINTENT_RPC_BSC": settings.rpc_bsc.get_secret_value(),
            "PAYINTENT_RPC_ETHEREUM": settings.rpc_ethereum.get_secret_value(),
            "PAYINTENT_SIGNER_NATIVE": settings.signer_native.get_secret_value(),
            "PAYINTENT_SIGNER_BSC": settings.signer_bsc.get_secret_value(),
            "PAYINTENT_CHAIN_ANY_ENDPOINTS": "true",
            "PAYINTENT_LOG_LEVEL": "DEBUG",
        }

    async def start(self) -> None:
        command = Path(sys.executable).with_name("payintent")
        self.process = await asyncio.create_subprocess_exec(
            *(command, "worker", "--processes", "1", "--metrics-port", str(self.metrics_port)),
            env=self._env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def stop(self) -> str:
        self.process.terminate()
        written, _ = await self.process.communicate()
        return written.decode()


@pytest.fixture
async def worker(settings: Settings) -> AsyncIterator[_Worker]:
    worker = _Worker(settings)
    yield worker
    if worker.process.returncode is None:
        await worker.stop()


async def test_no_address_of_an_endpoint_is_ever_told(
    api: Api, operator: Api, world: World, worker: _Worker, settings: Settings
) -> None:
    await world.perform(SetChain(chain="native", finality="confirmations", confirmations=2))
    refused = [await _refusal_of_a_contract(world, chain) for chain in settings.endpoints]
    methods = await offer_tokens(_without_endpoints(world))
    for chain in ("bsc", "ethereum"):
        await offer_tokens(_without_endpoints(world), chain)
    _, session = await bill(world, methods["NATIVED"])
    await worker.start()
    async with Api(f"http://127.0.0.1:{worker.metrics_port}", world) as told:
        metrics = await _until_it_failed(told)
    token = operator.bearer(await world.operator_token())
    answers = [
        await operator.send("GET", path, headers=token)
        for path in ("/metrics", "/operator/chain/list", "/operator/audit/list")
    ]
    answers += [
        await api.send("GET", path)
        for path in ("/v1/chains/native", "/v1/chains/bsc", session_path(session), "/readyz")
    ]
    assert {one.status for one in answers} == {200}
    written = await worker.stop()
    print(written)
    events = {json.loads(line)["event"] for line in written.splitlines()}
    assert {"chain_away", "chain_not_watched", "chain_signer_unusable"} <= events
    said = [written, metrics, *refused, *(one.body.decode() for one in answers)]
    said += [str(to_json_value(await world.perform(ListChains()))), repr(settings), str(settings)]
    assert [one for one in said if _PLANTED in one or "127.0.0.1:1/" in one] == []


async def _refusal_of_a_contract(world: World, chain: str) -> str:
    """Try to add a contract whose code no endpoint returns; return the error with its causes."""
    with pytest.raises(RefusedError) as refused:
        await offer_tokens(world, chain)
    assert f"{chain}-1" in refused.value.message
    return "".join(traceback.format_exception(refused.value))


def _without_endpoints(world: World) -> World:
    """Return the sandbox as a process without endpoints sees it, which compares no code."""
    nowhere = {f"rpc_{chain}": SecretStr("") for chain in world.service.settings.endpoints}
    settings = world.service.settings.model_copy(update=nowhere)
    return replace(world, service=replace(world.service, settings=settings))


async def _until_it_failed(told: Api) -> str:
    """Wait until reading two chains has failed."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                metrics = (await told.send("GET", "/metrics")).body.decode()
            except OSError:
                metrics = ""
            wanted = [f'payintent_chain_failures_total{{chain="{one}"}}' for one in _FAILING]
            if all(one in metrics for one in wanted):
                return metrics
            await asyncio.sleep(0.05)
