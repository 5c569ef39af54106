"""When requests fail, the log contains ids but no secrets."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.http.wire import exchange
from tests.support.arrange import BODY
from tests.support.installed_methods import add_simulator_account
from tests.support.ports import free_port
from tests.support.world import Api, World

pytestmark = pytest.mark.full

_PLANTED_UID = "planted-uid"
_PLANTED_EMAIL = "planted.buyer@example.com"


class _Process:
    """`payintent api` as operators run it, and its output."""

    def __init__(self, world: World) -> None:
        self.port = free_port()
        settings = world.service.settings
        self._env = {
            "PATH": os.environ["PATH"],
            "DATABASE_URL": settings.database_url,
            "PAYINTENT_PEPPER": settings.pepper.get_secret_value(),
            "PAYINTENT_KEYRING": settings.keyring.get_secret_value(),
            "PAYINTENT_LOG_LEVEL": "DEBUG",
            "PAYINTENT_DRAIN_S": "0",
        }

    async def start(self) -> None:
        command = Path(sys.executable).with_name("payintent")
        self._process = await asyncio.create_subprocess_exec(
            *(command, "api", "--processes", "1", "--port", str(self.port)),
            env=self._env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def stop(self) -> str:
        self._process.terminate()
        output, _ = await self._process.communicate()
        return output.decode()


@pytest.fixture
async def process(world: World) -> AsyncIterator[_Process]:
    process = _Process(world)
    await process.start()
    yield process
    if process._process.returncode is None:
        await process.stop()


async def test_secrets_are_never_logged(world: World, process: _Process) -> None:
    account = await add_simulator_account(
        world.service.settings,
        api_key="planted-gateway-key",
        signing_secret="planted-signing-secret",
    )
    await world.rows("UPDATE payment_method SET account_id = $1 WHERE id = $2", account, world.card)
    async with Api(f"http://127.0.0.1:{process.port}", world) as api:
        await _wait_until_healthy(api)
        await api.send("GET", "/v1/payments/x", headers={"Authorization": "Basic planted-basic"})
        forged = world.api_key[:-6] + "AAAAAA"
        await api.send("GET", "/v1/payments/x", headers=api.bearer(forged))
        created = await api.create(
            payer_uid=_PLANTED_UID, payer_email=_PLANTED_EMAIL, metadata={"note": "planted-note"}
        )
        assert created.status == 201
        checkout_id = created.json["checkout_id"]
        quotes = f"/v1/checkout/{checkout_id}/quotes"
        failed = await api.send("POST", quotes, json={"payment_method_id": world.card})
        assert failed.status == 502
        unsigned = await api.send(
            "POST",
            f"/v1/callbacks/simulator/{account}",
            data=json.dumps({"secret": "planted-callback", "checkout": checkout_id}),
            headers={"sim-signature": "v1=planted-signature"},
        )
        assert unsigned.status == 401
        await exchange(
            api.base, b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: planted\x01-raw\r\n\r\n"
        )
        await _provoke_bug(api)
        await world.rows("ALTER TABLE checkout RENAME TO planted_table")
        assert (await api.create()).status == 503
    output = await process.stop()
    events = [_parse_event(line) for line in output.splitlines()]
    assert {"provider_failed", "callback_refused", "bug"} <= {event["event"] for event in events}
    [failed_event] = [event for event in events if event["event"] == "provider_failed"]
    assert (failed_event["provider"], failed_event["account"]) == ("simulator", account)
    assert failed_event["session"].startswith("sess_")
    for secret in (
        *(world.api_key, world.api_key.split("_")[3], forged, world.callback_secret, "whsec_"),
        *("planted", "Bearer", "Basic", checkout_id, checkout_id[3:], _PLANTED_EMAIL),
        *("example.com", "Idempotency"),
    ):
        assert secret not in output, secret
    bugs = [event for event in events if event["event"] == "bug"]
    assert all(event["request_id"] and event["error"] and event["where"] for event in bugs)


async def _wait_until_healthy(api: Api) -> None:
    while True:
        try:
            if (await api.send("GET", "/healthz")).status == 200:
                return
        except OSError:
            await asyncio.sleep(0.02)


async def _provoke_bug(api: Api) -> None:
    """Make the database reject a row. Its error message quotes the complete row."""
    await api.world.rows("ALTER TABLE payment ADD CONSTRAINT planted CHECK (payer_uid <> 'bug')")
    body = BODY | {"payer_uid": "bug", "payer_email": _PLANTED_EMAIL}
    headers = api.bearer() | {"Idempotency-Key": str(uuid4())}
    failed = await api.send("POST", "/v1/payments", json=body, headers=headers)
    assert (failed.status, failed.json["code"]) == (500, "INTERNAL_ERROR")
    assert b"planted" not in failed.body


def _parse_event(line: str) -> dict[str, Any]:
    try:
        event: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        pytest.fail(f"not a JSON line: {line}")
    return event
