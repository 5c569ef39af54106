"""`python -m bench.processes`: compare one API process with one process per core.

PostgreSQL, the API and the clients share this machine. More processes split creation requests into
smaller batches, so each request costs more. With many clients, the batches are full anyway.
"""

import asyncio
import os
import statistics
from pathlib import Path

import asyncpg
from rich.console import Console
from rich.table import Table

from bench.http import request
from bench.installation import Installation, free_ports
from bench.load import CREATE_BODY, ID, KEY, Plan, cpu_s, run_load
from bench.machine import print_machine
from bench.workspaces import own_servers
from payintent.core import ids
from payintent_sandbox.chains.dev_chains import DevChains
from payintent_sandbox.installation import prepare_installation

_CLIENTS = (8, 32, 64, 128, 256)
_ROUNDS = 3
_ROUND_S = 3.0
_WARM_S = 0.5
_KNOWN = 2_000  # payments to read
_CREATE, _GET = "POST /v1/payments", "GET /v1/payments/{payment_id}"


def main() -> None:
    """Measure, and print the results."""
    var_dir = Path(os.environ.get("VAR_DIR", "var")).resolve()
    var_dir.mkdir(parents=True, exist_ok=True)
    counts = (1, len(os.sched_getaffinity(0)))
    loads: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    with own_servers(var_dir)("processes") as place:
        chains = DevChains(place.folder, (0, 0, 0))
        preparing = prepare_installation(place.folder, free_ports(), place.url, chains)
        installation = Installation(world=asyncio.run(preparing), log_dir=place.folder)
        for _ in range(_ROUNDS):
            for processes in counts:
                with installation.api(processes=processes) as pid:
                    for clients in _CLIENTS:
                        for name, figures in _run(installation, pid, clients).items():
                            loads.setdefault((name, processes, clients), []).append(figures)
    console = Console(width=110)
    for name in (_CREATE, _GET):
        console.print(_table(name, counts, loads))
    print_machine(console)


def _run(installation: Installation, pid: int, clients: int) -> dict[str, tuple[float, float]]:
    """Measure creating and reading payments: requests per second, and CPU time per request."""
    authorization = {"authorization": f"Bearer {installation.api_key}"}
    headers = {**authorization, "idempotency-key": KEY.decode(), "content-type": "application/json"}
    create = request("POST", "/v1/payments", headers, CREATE_BODY.encode())
    created = _load(installation, pid, clients, create, 201, [])
    get = request("GET", f"/v1/payments/{ID.decode()}", authorization)
    payment_ids = asyncio.run(_list_payments(installation))
    return {_CREATE: created, _GET: _load(installation, pid, clients, get, 200, payment_ids)}


def _load(
    installation: Installation,
    pid: int,
    clients: int,
    request_bytes: bytes,
    status: int,
    item_ids: list[str],
) -> tuple[float, float]:
    plan = Plan(
        port=installation.world.ports.api,
        pid=0,
        clients=clients,
        warm_s=_WARM_S,
        measured_s=_ROUND_S,
        request=request_bytes,
        status=status,
        ids=item_ids,
    )
    before = _service_cpu_s(pid)
    load = run_load(plan)
    return load.answers / load.seconds, (_service_cpu_s(pid) - before) / load.total * 1e6


def _service_cpu_s(pid: int) -> float:
    """Read the CPU time of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_s(pid) + sum(cpu_s(int(child)) for child in children)


async def _list_payments(installation: Installation) -> list[str]:
    connection = await asyncpg.connect(installation.world.database_url)
    rows = await connection.fetch("SELECT id FROM payment ORDER BY id DESC LIMIT $1", _KNOWN)
    await connection.close()
    return [ids.format_id(ids.PAYMENT, row["id"]) for row in rows]


def _table(
    name: str, counts: tuple[int, int], loads: dict[tuple[str, int, int], list[tuple[float, float]]]
) -> Table:
    table = Table(title=f"{name}; medians of {_ROUNDS} rounds of {_ROUND_S:g} s")
    table.add_column("clients", justify="right")
    for count in counts:
        table.add_column(f"{count} processes" if count > 1 else "1 process", justify="right")
        table.add_column("CPU of the API", justify="right")
    table.add_column("ratio of rates, several / one", justify="right")
    for clients in _CLIENTS:
        rates = [statistics.median(rate for rate, _ in loads[name, n, clients]) for n in counts]
        costs = [statistics.median(cpu for _, cpu in loads[name, n, clients]) for n in counts]
        figures = [
            text
            for rate, cpu in zip(rates, costs, strict=True)
            for text in (f"{rate:,.0f}/s", f"{cpu:,.0f} us")
        ]
        table.add_row(str(clients), *figures, f"{rates[1] / rates[0]:.2f}")
    return table


if __name__ == "__main__":
    main()
