"""A simulated chain: a node that responds from memory, so that only the reader is measured.

A development chain stores every block and becomes slower with each block, so ten thousand blocks
with twenty thousand payments take minutes to mine. This node provides them immediately.
"""

import argparse
import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import uvloop
from aiohttp import web

from payintent.evm.event_logs import PAID, TRANSFER

NETWORK_ID = 612_055
PER_BLOCK = 10
TOPICS_MAX = 1_000
CONTRACT, TOKEN, PAYER, RECEIVER, FACTORY, FORWARDER = (
    bytes([number]) * 20 for number in (0xC0, 0x70, 0xB0, 0x40, 0xF0, 0xF1)
)
AMOUNT = 255 * 10**17
START_S = 1_700_000_000
BLOCK_S = 2


def pay_uuid(number: int) -> bytes:
    """Return the session uuid of a payment. PostgreSQL can compute it with `md5(number::text)`."""
    return hashlib.md5(str(number).encode(), usedforsecurity=False).digest()


def deposit_address(number: int) -> bytes:
    """Return the address of a deposit. PostgreSQL can compute it as well."""
    return hashlib.sha256(str(number).encode()).digest()[:20]


@dataclass
class PaperChain:
    """A chain of blocks up to `head`. The first blocks contain `payments`, ten in each block.

    Payments are logs of the contract, or token transfers to deposit addresses. Like real nodes, the
    chain rejects a search with more than 1,000 topics at a position.
    """

    payments: int
    head: int
    are_deposits: bool = False
    answers: dict[str, Callable[[list[Any]], str]] = field(init=False)

    def __post_init__(self) -> None:
        self.answers = {
            "eth_chainId": lambda _: f'"{hex(NETWORK_ID)}"',
            "eth_getBlockByNumber": lambda params: self._block(params[0]),
            "eth_getLogs": lambda params: self._logs(params[0]),
            "eth_getTransactionReceipt": lambda params: self._receipt(params[0]),
            "paper_advance": lambda params: self._advance(params[0]),
            "paper_searches": lambda _: str(self.searches),
        }
        self.searches = 0  # number of searches for recipients of transfers
        logs = [_log(number, are_deposits=self.are_deposits) for number in range(self.payments)]
        self._recipients = {log["topics"][-1]: number for number, log in enumerate(logs)}
        self._written = [json.dumps(log) for log in logs]
        self._numbers = {_hash("block", number): number for number in range(1, self.head + 1)}
        self._receipts = {log["transactionHash"]: json.dumps(_receipt(log)) for log in logs}

    async def answer(self, request: web.Request) -> web.Response:
        """Respond to a call or a batch of calls."""
        document = await request.json()
        if isinstance(document, list):
            text = f"[{','.join([self._told(item) for item in document])}]"
        else:
            text = self._told(document)
        return web.Response(text=text, content_type="application/json")

    def _told(self, call: dict[str, Any]) -> str:
        result = self.answers[call["method"]](call["params"])
        return f'{{"jsonrpc":"2.0","id":{call["id"]},"result":{result}}}'

    def _block(self, tag: str) -> str:
        number = self.head if tag == "latest" else int(tag, 16)
        if number > self.head:
            return "null"
        block = {
            "number": hex(number),
            "hash": _hash("block", number),
            "parentHash": _hash("block", number - 1),
            "timestamp": hex(START_S + BLOCK_S * number),
        }
        return json.dumps(block)

    def _logs(self, search: dict[str, Any]) -> str:
        if "blockHash" in search:  # EIP-234: proofs request a single block
            number = hex(self._number_of(search["blockHash"]))
            search = {"fromBlock": number, "toBlock": number}
        start, end = int(search["fromBlock"], 16), min(int(search["toBlock"], 16), self.head)
        if self.are_deposits:
            return self._transfers(search["topics"], start, end)
        logs = self._written[max(0, start - 1) * PER_BLOCK : max(0, end) * PER_BLOCK]
        return f"[{','.join(logs)}]"

    def _transfers(self, topics: list[list[str] | None], start: int, end: int) -> str:
        """Return the transfers to a search's recipients, or [] if it does not specify any."""
        recipients = topics[2] if len(topics) > 2 else None
        if recipients is None:
            return "[]"
        self.searches += 1
        if len(recipients) > TOPICS_MAX:
            raise ValueError("exceed max addresses or topics per search position")
        numbers = sorted(
            self._recipients[recipient] for recipient in recipients if recipient in self._recipients
        )
        transfers = [
            self._written[number] for number in numbers if start <= 1 + number // PER_BLOCK <= end
        ]
        return f"[{','.join(transfers)}]"

    def _number_of(self, block_hash: str) -> int:
        if block_hash not in self._numbers:  # the chain has grown
            start = len(self._numbers) + 1
            self._numbers |= {
                _hash("block", number): number for number in range(start, self.head + 1)
            }
        return self._numbers[block_hash]

    def _receipt(self, tx_hash: str) -> str:
        return self._receipts.get(tx_hash, "null")

    def _advance(self, head: int) -> str:
        self.head = head
        return str(head)


def _hash(what: str, number: int) -> str:
    return _hex(hashlib.sha256(f"{what} {number}".encode()).digest())


def _hex(data: bytes) -> str:
    return f"0x{data.hex()}"


def _log(number: int, *, are_deposits: bool) -> dict[str, Any]:
    """Return the log of a payment. Block 1 has the first ten payments."""
    block = 1 + number // PER_BLOCK
    event: dict[str, Any] = {
        "address": _hex(CONTRACT),
        "topics": [
            _hex(PAID),
            _hex(pay_uuid(number).ljust(32, b"\0")),
            _hex(PAYER.rjust(32, b"\0")),
            _hex(TOKEN.rjust(32, b"\0")),
        ],
        "data": _hex(AMOUNT.to_bytes(32, "big") + RECEIVER.rjust(32, b"\0")),
    }
    if are_deposits:
        topics = [TRANSFER, PAYER.rjust(32, b"\0"), deposit_address(number).rjust(32, b"\0")]
        event = {
            "address": _hex(TOKEN),
            "topics": [_hex(topic) for topic in topics],
            "data": _hex(AMOUNT.to_bytes(32, "big")),
        }
    return {
        **event,
        "blockNumber": hex(block),
        "blockHash": _hash("block", block),
        "transactionHash": _hash("tx", number),
        "transactionIndex": hex(number % PER_BLOCK),
        "logIndex": hex(number % PER_BLOCK),
        "removed": False,
    }


def _receipt(log: dict[str, Any]) -> dict[str, Any]:
    return {
        "transactionHash": log["transactionHash"],
        "blockNumber": log["blockNumber"],
        "blockHash": log["blockHash"],
        "status": "0x1",
        "to": log["address"],
        "from": _hex(PAYER),
        "gasUsed": hex(80_231),
        "logsBloom": f"0x{'0' * 512}",
        "logs": [log],
    }


async def serve(chain: PaperChain) -> None:
    """Print a free port, and serve a chain on it until a signal arrives."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/{path:.*}", chain.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    [(_, port)] = [address[:2] for address in runner.addresses]
    print(port, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Run a node."""
    parser = argparse.ArgumentParser(prog="python -m bench.paper_chain", description=__doc__)
    parser.add_argument("--payments", type=int, required=True)
    parser.add_argument("--head", type=int, required=True)
    parser.add_argument("--deposits", action="store_true")
    options = parser.parse_args()
    uvloop.run(serve(PaperChain(options.payments, options.head, options.deposits)))


if __name__ == "__main__":
    main()
