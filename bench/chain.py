"""`python -m bench.chain`: measure how fast final on-chain payments are matched and stored.

One process watches the chain through two endpoints, as a worker does. Another process
acts as the node.
"""

import argparse
import asyncio
import base64
import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import asyncpg
import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from bench.load import database_cpu_s
from bench.machine import print_machine
from bench.paper_chain import (
    AMOUNT,
    CONTRACT,
    FACTORY,
    FORWARDER,
    PER_BLOCK,
    RECEIVER,
    TOKEN,
)
from bench.workspaces import Places, own_servers
from payintent.chains import store as chain_store
from payintent.chains.factory_operations import AddFactory
from payintent.chains.operations import AddContract, SetToken
from payintent.db import migrations_runner
from payintent.evm.chain_reader import Finality, ReaderConfig, RpcChainReader
from payintent.merchants.methods_operations import AddPaymentMethod
from payintent.merchants.operations import CreateMerchant
from payintent.onchain.operations import SetChain
from payintent.onchain.watch_loop import watch_once
from payintent.operators.operation import Actor
from payintent.runtime.settings import Settings
from payintent.runtime.waiting import tune_garbage_collector
from payintent.service import Service, open_service

SLUG = "native"
CONFIRMATIONS = 12
ACTOR = Actor("bench", "the benchmark's own")
FULL = (20_000, 10_000)  # payments, and blocks mined during an outage
QUICK = (200, 100)
_SOME = 100  # payments mined during the outage
_KEY = base64.b64encode(bytes(range(32))).decode()

_PAYMENTS = """
INSERT INTO payment (id, merchant_id, checkout_id, currency, amount, amount_text, payer_uid,
    include_pegged_assets, metadata, tax_manager, expires_at, created_at, updated_at)
SELECT (lpad(to_hex(n), 12, '0') || '70008' || left(md5(n::text), 15))::uuid, $1::bigint,
    'cs_' || n, 'USD', 25.5, '25.50', 'buyer-1', true, '{"order_id":"A-1009"}', 'NONE',
    clock() + interval '1 day', clock(), clock()
FROM generate_series(0, $2::int - 1) AS n
"""
_SESSIONS = """
INSERT INTO session (id, payment_id, account_id, payment_method_id, provider, provider_name, kind,
    label, country, chain, token, currency, amount, fee_mode, fee_rate, fee_amount, estimated_tax,
    total_amount, total_minor, life, reference, inquire_at, token_address)
SELECT gen_random_uuid(), id, $1::bigint, $2::bigint, $4, $4,
    'onchain', 'USDT', 'US', 'native', 'USDT', 'USDT', '25.5', 'INCLUSIVE', '0', '0', '0', '25.5',
    $3::text::numeric, 'open', '0x' || md5(substring(checkout_id FROM 4)), clock() + interval '1 h',
    (SELECT address FROM chain_token WHERE chain = 'native' AND symbol = 'USDT')
FROM payment
"""
_ADDRESSES = """
INSERT INTO deposit_address (session_id, account_id, uuid, address, from_block)
SELECT s.id, s.account_id, decode(substr(s.reference, 3), 'hex'),
    substr(sha256(substring(p.checkout_id FROM 4)::bytea), 1, 20), 0
FROM session s
JOIN payment p ON p.id = s.payment_id
"""
_SELECTED = """
UPDATE payment p SET status = 'PROCESSING', session_id = s.id, version = 2
FROM session s
WHERE s.payment_id = p.id
"""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the watching process."""

    payments: int
    seconds: float
    per_s: float
    cpu_s: float  # of the watching process
    database_cpu_s: float
    poll_cpu_s: float  # of the watching process and PostgreSQL, while all payments are pending
    searches: int  # deposit searches per endpoint in that poll
    blocks: int
    catch_up_s: float
    memory_mb: float


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the watching process."""

    database_url: str
    node_url: str
    payments: int
    blocks: int


def settings(database_url: str) -> Settings:
    """Return the settings for all of this benchmark's processes."""
    return Settings.model_validate(
        {
            "database_url": database_url,
            "pepper": _KEY,
            "keyring": f"bench:{_KEY}",
            "sandbox": True,
            "log_level": "ERROR",
        }
    )


async def provision(database_url: str, payments: int, *, are_deposits: bool = False) -> None:
    """Write a contract, a token, and pending payments."""
    await migrations_runner.migrate(database_url)
    service = await open_service(settings(database_url))
    how = SetChain(chain=SLUG, finality="confirmations", confirmations=CONFIRMATIONS)
    await service.run_operation(how, ACTOR)
    await service.run_operation(SetToken(chain=SLUG, symbol="USDT", address=_hex(TOKEN)), ACTOR)
    contract = await service.run_operation(
        AddContract(chain=SLUG, address=_hex(CONTRACT), receiver=_hex(RECEIVER), deployed_block=0),
        ACTOR,
    )
    if are_deposits:
        contract = await service.run_operation(
            AddFactory(
                chain=SLUG,
                address=_hex(FACTORY),
                forwarder=_hex(FORWARDER),
                receiver=_hex(RECEIVER),
                deployed_block=0,
            ),
            ACTOR,
        )
    merchant = (await service.run_operation(CreateMerchant(name="Bench"), ACTOR)).merchant
    method = await service.run_operation(
        AddPaymentMethod(
            merchant_id=merchant.id,
            account_id=contract.account_id,
            kind="onchain",
            label="USDT",
            currencies=["USDT"],
            token="USDT",  # noqa: S106 - a symbol
        ),
        ACTOR,
    )
    await service.close()
    connection = await asyncpg.connect(database_url)
    await connection.execute(_PAYMENTS, merchant.id, payments)
    provider = "onchain" if are_deposits else "gateway_contract"
    await connection.execute(_SESSIONS, contract.account_id, method.id, str(AMOUNT), provider)
    await connection.execute(_SELECTED)
    if are_deposits:
        await connection.execute(_ADDRESSES)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def watch(task: _Task) -> Found:
    """Read all payments, then the blocks mined during an outage, as a worker does."""
    tune_garbage_collector()
    service = await open_service(settings(task.database_url))
    config = ReaderConfig(
        network_id=612_055, finality=Finality.CONFIRMATIONS, confirmations=CONFIRMATIONS
    )
    reader = RpcChainReader(SLUG, [f"{task.node_url}/one", f"{task.node_url}/two"], config)
    first = task.payments - _SOME
    backend: int = await service.database.value("SELECT pg_backend_pid()")
    await _read(service, reader)
    searches = await _ask(task.node_url, "paper_searches")
    before_cpu = time.process_time() + database_cpu_s(backend)
    await _read(service, reader)
    poll_cpu_s = time.process_time() + database_cpu_s(backend) - before_cpu
    searches = (await _ask(task.node_url, "paper_searches") - searches) // 2
    await _ask(task.node_url, "paper_advance", first // PER_BLOCK + CONFIRMATIONS)
    before_cpu, before = time.process_time(), time.perf_counter()
    before_database = database_cpu_s(backend)
    await _read(service, reader)
    seconds = time.perf_counter() - before
    cpu_s = time.process_time() - before_cpu
    spent_s = database_cpu_s(backend) - before_database
    await _expect(service, first)
    await _ask(task.node_url, "paper_advance", first // PER_BLOCK + CONFIRMATIONS + task.blocks)
    before = time.perf_counter()
    await _read(service, reader)
    catch_up_s = time.perf_counter() - before
    await _expect(service, task.payments)
    await reader.close()
    await service.close()
    return Found(
        payments=first,
        seconds=seconds,
        per_s=first / seconds,
        cpu_s=cpu_s,
        database_cpu_s=spent_s,
        poll_cpu_s=poll_cpu_s,
        searches=searches,
        blocks=task.blocks,
        catch_up_s=catch_up_s,
        memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


async def _read(service: Service, reader: RpcChainReader) -> None:
    chain = await chain_store.get_chain(service.database, SLUG)
    while chain and await watch_once(service.watch_context, chain, reader):
        pass


async def _expect(service: Service, count: int) -> None:
    """Raise an error unless exactly this many payments were processed."""
    [row] = await service.database.fetch(
        """
        SELECT count(*) AS paid,
            (SELECT count(*) FROM chain_receipt WHERE disposition IN ('credited', 'deposit'))
                AS credited,
            (SELECT count(*) FROM event WHERE type = 'payment.completed') AS events
        FROM payment
        WHERE status = 'PAID'
        """
    )
    if {*row.values()} != {count}:
        raise RuntimeError(f"{dict(row)} of {count} payments")


async def _ask(url: str, method: str, *params: int) -> int:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with aiohttp.ClientSession() as client, client.post(url, json=body) as answer:
        answer.raise_for_status()
        return (await answer.json())["result"]


@contextlib.contextmanager
def _node(payments: int, *, are_deposits: bool) -> Iterator[str]:
    words = [sys.executable, "-m", "bench.paper_chain"]
    words += ["--payments", str(payments), "--head", str(CONFIRMATIONS)]
    words += ["--deposits"] if are_deposits else []
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline() if process.stdout else 0)}"
        finally:
            process.terminate()


def measure(places: Places, payments: int, blocks: int, *, are_deposits: bool = False) -> Found:
    """Measure on a separate database, with fsync."""
    with places("deposits" if are_deposits else "chain") as place:
        asyncio.run(provision(place.url, payments + _SOME, are_deposits=are_deposits))
        with _node(payments + _SOME, are_deposits=are_deposits) as node_url:
            task = _Task(
                database_url=place.url,
                node_url=node_url,
                payments=payments + _SOME,
                blocks=blocks,
            )
            result = subprocess.run(
                [sys.executable, "-m", "bench.chain", "--watch"],
                input=msgspec.json.encode(task),
                stdout=subprocess.PIPE,
                check=True,
            )
        return msgspec.json.decode(result.stdout, type=Found)


def show(console: Console, places: Places, *, quick: bool = False) -> Found:
    """Measure, and print the results."""
    figures = measure(places, *(QUICK if quick else FULL))
    table = Table(title=f"the watcher: {figures.payments:,} finalized payments, two endpoints")
    table.add_column("")
    table.add_column("", justify="right")
    for name, figure in (
        ("proven, matched, PAID and stored", f"{figures.per_s:,.0f}/s"),
        (
            "CPU of the watching process, per payment",
            f"{figures.cpu_s / figures.payments * 1e6:.0f} us",
        ),
        (f"catch-up after {figures.blocks:,} blocks", f"{figures.catch_up_s * 1000:,.0f} ms"),
        ("memory of the watching process", f"{figures.memory_mb:,.0f} MB"),
    ):
        table.add_row(name, figure)
    console.print(table)
    return figures


def _hex(data: bytes) -> str:
    return f"0x{data.hex()}"


def main() -> None:
    """Measure and print the results, or run as a benchmark's watching process."""
    parser = argparse.ArgumentParser(prog="python -m bench.chain", description=__doc__)
    parser.add_argument("--watch", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--quick", action="store_true", help="a short smoke test; its figures are meaningless"
    )
    options = parser.parse_args()
    if options.watch:
        task = msgspec.json.decode(sys.stdin.buffer.read(), type=_Task)
        sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(watch(task))))
        return
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    console = Console(width=100)
    show(console, own_servers(var_dir), quick=options.quick)
    print_machine(console)


if __name__ == "__main__":
    main()
