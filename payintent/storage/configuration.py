"""The version of the configuration, which tells whether cached configuration is current."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from payintent.storage.database import Executor
from payintent.storage.onchain.chain_watch import WATCHED


@dataclass(frozen=True, slots=True)
class ConfigurationVersion:
    """A version of the configuration, and the chains that are watched now.

    Triggers change the version in each transaction that changes merchants, methods, accounts,
    providers, tokens, tax rates or shown catalogs. Whether a chain is watched depends on the
    clock, so it is not versioned.
    """

    version: UUID
    watched_chains: tuple[str, ...]


async def get_version(database: Executor) -> ConfigurationVersion:
    row = await database.row(
        f"""
        SELECT version, ARRAY(
            SELECT k.chain
            FROM chain_cursor k
            WHERE {WATCHED}
            ORDER BY k.chain
            LIMIT 1000
        ) AS watched_chains
        FROM configuration_version
        """
    )
    assert row is not None  # noqa: S101 - the table has a single row
    return ConfigurationVersion(row["version"], tuple(row["watched_chains"]))


async def get_versions(database: Executor, callers: Sequence[None]) -> list[ConfigurationVersion]:
    """Read the version once for all `callers`."""
    return [await get_version(database)] * len(callers)
