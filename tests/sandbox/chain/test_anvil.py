"""A development chain as a child process, with real chains in real folders."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from payintent_sandbox.chains.anvil import Anvil, answers, supervised_command
from payintent_sandbox.chains.anvil_binary import AnvilError, Binary
from payintent_sandbox.processes import ChildProcess, ProcessSupervisor
from tests.support.chain import Evm, wait_until_true
from tests.support.ports import free_port_base

pytestmark = pytest.mark.full

_PARENT = """
import sys
from pathlib import Path
from payintent_sandbox.chains.anvil import Anvil
chain = Anvil(1, log=Path(sys.argv[1]))
print(chain.start(), chain.pid, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def running(chain: Anvil, port: int = 0) -> Iterator[Evm]:
    evm = Evm(chain.start(port))
    try:
        yield evm
    finally:
        evm.close()
        chain.stop()


def block(evm: Evm, name: str) -> int:
    return int(evm.ask("eth_getBlockByNumber", name, False)["number"], 16)


def test_a_chain_starts_on_a_free_port_with_the_requested_chain_id(
    anvil: Binary, tmp_path: Path
) -> None:
    chain = Anvil(612_055, log=tmp_path / "log", binary=anvil)
    with running(chain) as evm:
        assert answers(chain.url, 612_055)
        assert not answers(chain.url, 1)
        assert chain.alive()
        evm.ask("anvil_mine", "0xa")
        assert (block(evm, "latest"), block(evm, "safe"), block(evm, "finalized")) == (10, 9, 8)
    assert not chain.alive()
    with pytest.raises(AnvilError, match="has not been started"):
        _ = chain.url


def test_a_restart_preserves_blocks_balances_and_receipts(anvil: Binary, tmp_path: Path) -> None:
    chain = Anvil(1, log=tmp_path / "log", folder=tmp_path / "chain", binary=anvil)

    def read_chain(evm: Evm) -> list[object]:
        blocks = [evm.ask("eth_getBlockByNumber", hex(number), True) for number in range(3)]
        tx_hash = blocks[1]["transactions"][0]["hash"]
        receipt = evm.ask("eth_getTransactionReceipt", tx_hash)
        return [[block["hash"] for block in blocks], receipt, evm.coins(evm.accounts[1])]

    with running(chain) as evm:
        for value in (1, 2):
            evm.send(evm.accounts[0], evm.accounts[1], value=value)
        before = read_chain(evm)
    with running(chain, free_port_base()) as evm:
        assert read_chain(evm) == before


def test_a_partly_written_state_is_set_aside(anvil: Binary, tmp_path: Path) -> None:
    folder = tmp_path / "chain"
    folder.mkdir()
    (folder / "state.json").write_text('{"block":{"numb')

    with running(Anvil(1, log=tmp_path / "log", folder=folder, binary=anvil)) as evm:
        assert block(evm, "latest") == 0

    assert (folder / "state.broken").read_text() == '{"block":{"numb'


def test_an_occupied_port_is_reported_in_one_line(anvil: Binary, tmp_path: Path) -> None:
    first = Anvil(1, log=tmp_path / "first", binary=anvil)
    with running(first):
        port = int(first.url.rpartition(":")[2])
        second = Anvil(1, log=tmp_path / "second", binary=anvil)
        with pytest.raises(AnvilError, match="in use") as caught:
            second.start(port)
        assert len(str(caught.value).splitlines()) == 1
        assert not second.alive()
        assert first.alive()


def test_the_number_of_retained_blocks_can_be_limited(anvil: Binary, tmp_path: Path) -> None:
    for blocks_kept, is_available in ((256, False), (None, True)):
        chain = Anvil(1, log=tmp_path / "log", binary=anvil, blocks_kept=blocks_kept)
        with running(chain) as evm:
            evm.send(evm.accounts[0], evm.accounts[1], value=1)
            evm.ask("anvil_mine", hex(300))
            transactions = evm.ask("eth_getBlockByNumber", "0x1", False)["transactions"]
            receipt = evm.ask("eth_getTransactionReceipt", transactions[0]) if transactions else 0
            assert bool(receipt) == is_available


def test_the_chain_does_not_write_to_the_home_folder(
    anvil: Binary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    with running(Anvil(1, log=tmp_path / "log", binary=anvil)) as evm:
        evm.ask("anvil_mine", hex(600))
        assert list((tmp_path / "home").iterdir()) == []


def test_the_chain_ends_with_its_parent_process(anvil: Binary, tmp_path: Path) -> None:
    words = [sys.executable, "-c", _PARENT, str(tmp_path / "log")]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        assert parent.stdout is not None
        url, pid = parent.stdout.readline().split()
        assert Path(f"/proc/{pid}").exists()
        assert answers(url, 1)
        parent.kill()
    wait_until_true(lambda: not answers(url, 1))


def pid_of(port: int) -> int:
    """Return the process id of a supervised chain, found by its command; 0 if it is not running."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
            if f"--port\0{port}\0--chain-id".encode() in words:
                return int(entry.name)
    return 0


def test_a_supervisor_restarts_a_killed_chain_on_its_port(anvil: Binary, tmp_path: Path) -> None:
    port = free_port_base()
    url = f"http://127.0.0.1:{port}"
    words = supervised_command(network_id=56, port=port, folder=tmp_path / "chain")
    children = ProcessSupervisor([ChildProcess("bsc", words, {})], tmp_path / "logs")

    async def until(condition: Callable[[], bool]) -> None:
        await asyncio.to_thread(wait_until_true, condition)

    async def restart_chain() -> None:
        await children.start()
        stop = asyncio.Event()
        supervision = asyncio.create_task(children.supervise(stop))
        try:
            await until(lambda: answers(url, 56))
            killed = pid_of(port)
            os.kill(killed, signal.SIGKILL)
            await until(lambda: pid_of(port) not in (0, killed) and answers(url, 56))
        finally:
            stop.set()
            await supervision
            await children.stop()

    asyncio.run(restart_chain())
    assert not answers(url, 56)
    assert (tmp_path / "chain" / "state.json").exists()
