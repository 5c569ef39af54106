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
from tests.support.ports import free_port
from tests.support.timeouts import PATIENCE_S
from tests.support.world import Api, World

pytestmark = pytest.mark.full

_SECRET = "planted-key"
_FAILING_CHAINS = ("native", "ethereum")
# The first URL is unreachable; the second is invalid, so its chain is not watched.
_UNREACHABLE_URL, _INVALID_URL = (
    f"http://me:{_SECRET}@127.0.0.1:1/{_SECRET}",
    f"ws://{_SECRET}/{_SECRET}",
)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    urls = {
        "rpc_native": _UNREACHABLE_URL,
        "rpc_bsc": _INVALID_URL,
        "rpc_ethereum": f"{_UNREACHABLE_URL}, {_UNREACHABLE_URL}",
    }
    urls |= {"signer_native": _UNREACHABLE_URL, "signer_bsc": _INVALID_URL}
    return Settings.model_validate(
        settings.model_dump()
        | {"pepper": settings.pepper, "keyring": settings.keyring}
        | {"database_url": settings.database_url, "chain_watched_s": 60, **urls}
    )


class _Worker:
    """`payintent worker`, run as a process, and its output."""

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
        output, _ = await self.process.communicate()
        return output.decode()


@pytest.fixture
async def worker(settings: Settings) -> AsyncIterator[_Worker]:
    worker = _Worker(settings)
    yield worker
    if worker.process.returncode is None:
        await worker.stop()


async def test_endpoint_urls_never_appear_in_responses_metrics_or_logs(
    api: Api, operator: Api, world: World, worker: _Worker, settings: Settings
) -> None:
    await world.perform(SetChain(chain="native", finality="confirmations", confirmations=2))
    refusals = [await _add_contract_and_fail(world, chain) for chain in settings.endpoints]
    methods = await offer_tokens(_without_endpoints(world))
    for chain in ("bsc", "ethereum"):
        await offer_tokens(_without_endpoints(world), chain)
    _, session = await bill(world, methods["NATIVED"])
    await worker.start()
    async with Api(f"http://127.0.0.1:{worker.metrics_port}", world) as metrics_api:
        metrics = await _wait_for_failures(metrics_api)
    token = operator.bearer(await world.operator_token())
    responses = [
        await operator.send("GET", path, headers=token)
        for path in ("/metrics", "/operator/chain/list", "/operator/audit/list")
    ]
    responses += [
        await api.send("GET", path)
        for path in ("/v1/chains/native", "/v1/chains/bsc", session_path(session), "/readyz")
    ]
    assert {response.status for response in responses} == {200}
    output = await worker.stop()
    print(output)
    events = {json.loads(line)["event"] for line in output.splitlines()}
    assert {"chain_away", "chain_not_watched", "chain_signer_unusable"} <= events
    texts = [output, metrics, *refusals, *(response.body.decode() for response in responses)]
    texts += [str(to_json_value(await world.perform(ListChains()))), repr(settings), str(settings)]
    assert [text for text in texts if _SECRET in text or "127.0.0.1:1/" in text] == []


async def _add_contract_and_fail(world: World, chain: str) -> str:
    """Add a contract through failing endpoints; return the error with its causes."""
    with pytest.raises(RefusedError) as refused:
        await offer_tokens(world, chain)
    assert f"{chain}-1" in refused.value.message
    return "".join(traceback.format_exception(refused.value))


def _without_endpoints(world: World) -> World:
    """Return a world without endpoints, which does not compare the code of contracts."""
    no_urls = {f"rpc_{chain}": SecretStr("") for chain in world.service.settings.endpoints}
    settings = world.service.settings.model_copy(update=no_urls)
    return replace(world, service=replace(world.service, settings=settings))


async def _wait_for_failures(api: Api) -> str:
    """Wait until reading two chains has failed."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                metrics = (await api.send("GET", "/metrics")).body.decode()
            except OSError:
                metrics = ""
            samples = [
                f'payintent_chain_failures_total{{chain="{chain}"}}' for chain in _FAILING_CHAINS
            ]
            if all(sample in metrics for sample in samples):
                return metrics
            await asyncio.sleep(0.05)
