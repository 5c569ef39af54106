"""`python -m bench.chain_client`: measure how fast a node's search response is parsed."""

import json
import os
import time

from rich.console import Console

from bench.machine import print_machine
from payintent.evm.abi import encode_pay
from payintent.evm.event_logs import PAID, read_logs

LOGS = 20_000
PER_BLOCK = 300
ROUNDS = 5
CONTRACT = bytes(range(20))


def answer(count: int) -> bytes:
    """Return a node's response with this many payments."""
    return json.dumps([_log(number) for number in range(count)]).encode()


def measure(count: int = LOGS, rounds: int = ROUNDS) -> float:
    """Return the best round's number of payments parsed per second on one core, including JSON."""
    text = answer(count)
    seconds = min(_seconds(text, count) for _ in range(rounds))
    return count / seconds


def show(console: Console) -> None:
    console.print(f"chain client: {measure():,.0f} logs/s parsed on one core, {LOGS:,} at once")


def _seconds(text: bytes, count: int) -> float:
    started = time.process_time()
    logs, _ = read_logs(text, frozenset({CONTRACT}), 0, count)
    seconds = time.process_time() - started
    if len(logs) != count:
        raise RuntimeError(f"{len(logs)} of {count} logs were read")
    return seconds


def _log(number: int) -> dict[str, object]:
    words = encode_pay(os.urandom(16), CONTRACT, 10**18 + number, 0)[4:]
    uuid, token, amount = (words[at : at + 32].hex() for at in (0, 32, 64))
    block = number // PER_BLOCK
    return {
        "address": f"0x{CONTRACT.hex()}",
        "topics": [f"0x{PAID.hex()}", f"0x{uuid}", f"0x{token}", f"0x{token}"],
        "data": f"0x{amount}{token}",
        "blockHash": f"0x{block:064x}",
        "blockNumber": hex(block),
        "blockTimestamp": hex(1_790_000_000 + block),
        "transactionHash": f"0x{number:064x}",
        "transactionIndex": hex(number % PER_BLOCK),
        "logIndex": hex(number % PER_BLOCK),
        "removed": False,
    }


if __name__ == "__main__":
    console = Console(width=100)
    show(console)
    print_machine(console)
