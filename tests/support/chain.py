"""Setup for chain tests: a client that waits, and contracts with their ABI."""

import http.client
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from eth_abi import decode, encode

from payintent_sandbox.chains.anvil_binary import AnvilUnsupportedError, Binary, ensure
from payintent_sandbox.chains.contracts import CompiledContract, load
from tests.support.timeouts import PATIENCE_S

ANSWER_S = 30
LOOK_S = 0.02
_MINES_BY_ITSELF_S = 5.0
_MINED_LOOK_S = 0.003
GAS = hex(3_000_000)


class Reverted(Exception):  # noqa: N818 - it is what the chain says, and expected
    """A call was reverted. The argument is the contract's reason."""


@dataclass(frozen=True)
class Log:
    address: str
    topics: list[str]
    data: str


@dataclass(frozen=True)
class Receipt:
    ok: bool
    gas: int
    block: int
    logs: list[Log]
    created: str | None


class Evm:
    """A client of a development chain, with a single connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._ids = itertools.count(1)
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=ANSWER_S)
        self.accounts: list[str] = self.ask("eth_accounts")
        self.fees: Counter[str] = Counter()  # gas costs by sender

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, *params: Any) -> Any:
        """Call a method and return its result, or raise the contract's reason."""
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", "/", json.dumps(body), headers)
        response = json.loads(self._connection.getresponse().read())
        if "error" in response:
            message = response["error"]["message"]
            assert message.startswith("execution reverted"), f"{method}: {response['error']}"
            raise Reverted(message.removeprefix("execution reverted").removeprefix(": "))
        return response.get("result")

    def send(self, sender: str, to: str | None, data: str = "0x", *, value: int = 0) -> Receipt:
        """Send a transaction and wait until it is mined. If it fails, raise its reason."""
        transaction = {"from": sender, "to": to, "data": data, "value": hex(value)}
        try:
            self.ask("eth_call", transaction, "latest")
        except Reverted:
            mined = self.mine(sender, to, data, value=value)
            assert not mined.ok, "the response and the block must agree"
            assert mined.logs == []
            raise
        mined = self.mine(sender, to, data, value=value)
        assert mined.ok
        return mined

    def mine(self, sender: str, to: str | None, data: str = "0x", *, value: int = 0) -> Receipt:
        """Send a transaction and wait until it is mined, even if it fails."""
        transaction = {"from": sender, "to": to, "data": data, "value": hex(value), "gas": GAS}
        receipt = self.receipt(self.ask("eth_sendTransaction", transaction))
        self.fees[sender] += int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
        return Receipt(
            ok=receipt["status"] == "0x1",
            gas=int(receipt["gasUsed"], 16),
            block=int(receipt["blockNumber"], 16),
            logs=[Log(log["address"], log["topics"], log["data"]) for log in receipt["logs"]],
            created=receipt["contractAddress"],
        )

    def receipt(self, tx_hash: str) -> dict[str, Any]:
        """Wait for a receipt. A node that has not mined for too long is told to mine a block.

        `eth_sendTransactionSync` of a busy anvil can miss the block that it waits for.
        """
        begun = time.monotonic()
        while (result := self.ask("eth_getTransactionReceipt", tx_hash)) is None:
            waited_s = time.monotonic() - begun
            assert waited_s < PATIENCE_S, f"{tx_hash} is not mined"
            if waited_s > _MINES_BY_ITSELF_S:
                self.ask("evm_mine")
            time.sleep(_MINED_LOOK_S)
        return result

    def deploy(self, name: str, *arguments: Any) -> "Deployed":
        contract = load(name)
        [inputs] = [item["inputs"] for item in contract.abi if item["type"] == "constructor"] or [
            []
        ]
        data = contract.bytecode + encode([item["type"] for item in inputs], arguments).hex()
        created = self.send(self.accounts[0], None, data).created
        assert created is not None
        return Deployed(self, contract, created)

    def coins(self, address: str) -> int:
        return int(self.ask("eth_getBalance", address, "latest"), 16)

    def now(self) -> int:
        """Return the latest block's time."""
        return int(self.ask("eth_getBlockByNumber", "latest", False)["timestamp"], 16)

    @contextmanager
    def revert_afterwards(self) -> Iterator[None]:
        """Undo all changes in the block."""
        snapshot = self.ask("evm_snapshot")
        yield
        assert self.ask("evm_revert", snapshot)


@dataclass(frozen=True)
class Deployed:
    """A deployed contract. Its functions are called by name, with the types of its ABI."""

    evm: Evm
    contract: CompiledContract
    address: str

    def data(self, function: str, *arguments: Any) -> str:
        return self.contract.call_data(function, *arguments)

    def send(self, sender: str, function: str, *arguments: Any, value: int = 0) -> Receipt:
        data = self.data(function, *arguments)
        return self.evm.send(sender, self.address, data, value=value)

    def call(self, function: str, *arguments: Any) -> Any:
        request = {"to": self.address, "data": self.data(function, *arguments)}
        output_data = bytes.fromhex(self.evm.ask("eth_call", request, "latest")[2:])
        [output] = decode(
            [item["type"] for item in self._function(function)["outputs"]], output_data
        )
        return output

    def _function(self, name: str) -> dict[str, Any]:
        [function] = [item for item in self.contract.abi if item.get("name") == name]
        return function


@contextmanager
def expect_revert(reason: str) -> Iterator[None]:
    """Expect a contract to revert with exactly this reason."""
    with pytest.raises(Reverted) as caught:
        yield
    assert caught.value.args == (reason,)


def wait_until_true(is_so: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(LOOK_S)


def fetched_anvil() -> Binary:
    """Return anvil, which is fetched once per environment. Fail if it cannot run."""
    try:
        return ensure()
    except AnvilUnsupportedError as error:
        pytest.fail(str(error))
