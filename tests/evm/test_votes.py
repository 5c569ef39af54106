"""Endpoints that report different logs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from payintent.core.errors import ChainUnavailableError
from payintent.evm.endpoint_votes import Reading, read_at_endpoints
from payintent.evm.port import Block, ChainHeads, TransferLog

AT = datetime(2026, 1, 1, tzinfo=UTC)
END = Block(10_000, b"\1" * 32, AT, b"\2" * 32)
SHORTER_END = Block(9_000, b"\5" * 32, AT, b"\6" * 32)


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


@dataclass
class ShorterSource(ForgedSource):
    """An endpoint reads fewer blocks, and reports a wrong time for its last block."""

    blocks: int = 0

    async def read_range(self, name: str) -> Reading[TransferLog, datetime]:
        end = replace(SHORTER_END, at=AT.replace(year=2036)) if name == "forging" else END
        return Reading(name, end, end.number, {})


async def test_a_single_endpoint_cannot_forge_the_time_of_the_last_block() -> None:
    async def fetch_block(name: str, number: int) -> Block:
        assert (name, number) == ("honest", SHORTER_END.number)
        return SHORTER_END

    reader: Any = SimpleNamespace(names=("forging", "honest"), fetch_block=fetch_block)
    heads = [ChainHeads(name, END, END) for name in reader.names]
    with pytest.raises(ChainUnavailableError, match="disagree about block 9000"):
        await read_at_endpoints(reader, ShorterSource(), heads, END.number, "native", "deposits")


async def test_an_endpoint_that_forges_many_logs_causes_a_limited_number_of_requests() -> None:
    source = ForgedSource(5_000)
    reader: Any = SimpleNamespace(names=("forging", "honest"))
    heads = [ChainHeads(name, END, END) for name in reader.names]
    agreement = await read_at_endpoints(reader, source, heads, END.number, "native", "deposits")
    assert agreement.facts == {}
    assert len(agreement.unproven) == 5_000
    assert source.requests <= 2_000
