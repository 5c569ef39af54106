"""Endpoints that report different logs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from payintent.evm.endpoint_votes import Reading, read_at_endpoints
from payintent.evm.port import Block, ChainHeads, TransferLog

AT = datetime(2026, 1, 1, tzinfo=UTC)
END = Block(10_000, b"\1" * 32, AT, b"\2" * 32)


@dataclass
class ForgedSource:
    """An endpoint reports a transfer in each of these blocks, and the others none."""

    blocks: int
    requests: int = 0
    logs: list[TransferLog] = field(default_factory=list)

    def __post_init__(self) -> None:
        address, block_hash = b"\3" * 20, b"\4" * 32
        self.logs = [
            TransferLog(
                address, address, address, 1, number, block_hash, number.to_bytes(32, "big"), 0
            )
            for number in range(self.blocks)
        ]

    async def read_range(self, name: str) -> Reading[TransferLog, datetime]:
        logs = self.logs if name == "forging" else []
        return Reading(name, END, END.number, dict.fromkeys(logs, AT))

    async def read_block(
        self, name: str, number: int, logs: Sequence[TransferLog]
    ) -> Reading[TransferLog, datetime]:
        self.requests += 1
        return Reading(name, END, number, dict.fromkeys(logs if name == "forging" else (), AT))

    async def confirm(self, name: str, facts: Any) -> bool:
        raise NotImplementedError


async def test_an_endpoint_that_forges_many_logs_causes_a_limited_number_of_requests() -> None:
    source = ForgedSource(5_000)
    reader: Any = SimpleNamespace(names=("forging", "honest"))
    heads = [ChainHeads(name, END, END) for name in reader.names]
    agreement = await read_at_endpoints(reader, source, heads, END.number, "native", "deposits")
    assert agreement.facts == {}
    assert len(agreement.unproven) == 5_000
    assert source.requests <= 2_000
