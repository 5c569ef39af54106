"""Each client trusts a private certificate authority only if it is configured."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import web
from pydantic import SecretStr

from payintent.chains import store as chain_store
from payintent.chains.checks import CheckResult, check_contract, open_configured_reader
from payintent.chains.operations import check_deployed_code
from payintent.core.errors import ChainUnavailableError, RefusedError
from payintent.db.driver import connect
from payintent.db.hosts import RefusedConnectionError
from payintent.evm.chain_reader import RpcChainReader
from payintent.evm.port import ContractRefundCall
from payintent.gateways.port import AccountProblem, NotContacted
from payintent.runtime.settings import Settings
from payintent.service import Service, open_service
from payintent.webhooks.model import OutgoingDelivery
from payintent.webhooks.sender import AttemptOutcome, WebhookSender
from tests.support.authority import Authority
from tests.support.http_server import clean_up

_ADDRESS = bytes(20)
_REFUSED = b"SFATAL\0C28P01\0Mpassword authentication failed\0\0"


class _Server:
    """A TLS server that counts requests."""

    def __init__(self) -> None:
        self.requests = 0
        self.url = ""

    async def answer(self, _: web.Request) -> web.Response:
        self.requests += 1
        return web.json_response({})


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def server(authority: Authority) -> AsyncIterator[_Server]:
    server, app = _Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server()).start()
    server.url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
    yield server
    await clean_up(runner)


async def _gateway(service: Service, url: str) -> None:
    answer = await service.http.request("GET", url, headers={})
    if isinstance(answer, NotContacted):
        assert answer.problem is AccountProblem.TLS


async def _webhook(service: Service, url: str) -> None:
    sender = WebhookSender(service.settings, time.time)
    delivery = OutgoingDelivery(
        event_id=uuid4(),
        payment_id=uuid4(),
        merchant_id=1,
        attempts=0,
        url=url,
        body=b"{}",
        secrets=[b"secret"],
    )
    attempt = await sender.send(delivery)
    await sender.close()
    assert attempt.outcome in {AttemptOutcome.DELIVERED, AttemptOutcome.TLS_ERROR}


async def _chain(service: Service, _: str) -> None:
    chain = await chain_store.get_chain(service.database, "ethereum")
    assert chain is not None
    reader = open_configured_reader(service.settings, chain)
    assert reader is not None
    with suppress(ChainUnavailableError):
        await reader.fetch_heads()
    await reader.close()


async def _contract_code(service: Service, _: str) -> None:
    chain = await chain_store.get_chain(service.database, "ethereum")
    assert chain is not None

    async def check(reader: RpcChainReader, name: str) -> CheckResult:
        return await check_contract(reader, name, _ADDRESS, _ADDRESS)

    with suppress(RefusedError):
        await check_deployed_code(service.operation_context, chain, check)


async def _signer(service: Service, _: str) -> None:
    with suppress(ChainUnavailableError):
        await service.refund_senders["ethereum"].signer.get_identity()


async def _refund_on_chain(service: Service, _: str) -> None:
    call = ContractRefundCall(
        network_id=1,
        contract=_ADDRESS,
        uuid=bytes(16),
        refund_id=bytes(16),
        token=_ADDRESS,
        to=_ADDRESS,
        amount=1,
    )
    with suppress(ChainUnavailableError):
        await service.refund_senders["ethereum"].trace(_ADDRESS, call, bytes(32), 1)


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    "request_by", [_gateway, _webhook, _chain, _contract_code, _signer, _refund_on_chain]
)
async def test_a_client_trusts_a_private_authority_only_if_it_is_configured(
    settings: Settings,
    authority: Authority,
    server: _Server,
    request_by: Callable[[Service, str], Awaitable[None]],
    trusted: bool,
) -> None:
    endpoint = SecretStr(server.url)
    ca_file = str(authority.ca_file) if trusted else ""
    changes = {"rpc_ethereum": endpoint, "signer_ethereum": endpoint, "ca_file": ca_file}
    service = await open_service(settings.model_copy(update=changes))
    try:
        await request_by(service, server.url)
    finally:
        await service.close()
    assert bool(server.requests) is trusted


def _refuse_password(listener: socket.socket, tls: ssl.SSLContext) -> None:
    """Speak PostgreSQL's protocol with TLS, up to a rejected password."""
    with suppress(OSError):  # if the client refuses the certificate
        plain, _ = listener.accept()
        with plain:
            plain.recv(8)  # the TLS request
            plain.sendall(b"S")
            with tls.wrap_socket(plain, server_side=True) as connection:
                connection.recv(1024)
                size = (len(_REFUSED) + 4).to_bytes(4, "big")
                connection.sendall(b"E" + size + _REFUSED)


@pytest.mark.parametrize(
    ("ca", "message"),
    [
        # TLS was established.
        ("own", "the database refuses the connection: password authentication failed"),
        ("another's", "the database cannot be reached: its certificate was rejected"),
    ],
)
async def test_a_database_certificate_is_verified_with_the_authority_in_the_url(
    authority: Authority, tmp_path: Path, ca: str, message: str
) -> None:
    (tmp_path / "another").mkdir()
    ca_file = authority.ca_file if ca == "own" else Authority(tmp_path / "another").ca_file
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = asyncio.create_task(
            asyncio.to_thread(_refuse_password, listener, authority.server())
        )
        port = listener.getsockname()[1]
        url = f"postgresql://payintent:secret@127.0.0.1:{port}/payintent"
        with pytest.raises(RefusedConnectionError, match=message):
            await connect(f"{url}?sslmode=verify-full&sslrootcert={ca_file}")
        await server


async def test_a_database_url_without_an_authority_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    url = "postgresql://payintent:secret@127.0.0.1:9/payintent?sslmode=verify-full"
    with pytest.raises(RefusedConnectionError, match=r"root certificate file .* does not exist"):
        await connect(url)
