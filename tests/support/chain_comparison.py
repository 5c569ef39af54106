"""Helpers for tests of the daily chain comparison."""

from collections.abc import Sequence

from payintent.cases.operations import ListCases
from payintent.chains.store import ChainRecord
from payintent.evm.chain_reader import RpcChainReader
from payintent.reconciliation.chain_comparison import ChainComparison, compare_chain
from payintent.reconciliation.operations import (
    ListReconciliationRuns,
    RunDetails,
    ShowReconciliationRun,
)
from payintent.runtime.settings import Settings
from tests.support.onchain import ChainWorld, config_of


def make_comparison(ground: ChainWorld, urls: Sequence[str] = ()) -> ChainComparison:
    service = ground.world.service

    def open_reader(settings: Settings, chain: ChainRecord) -> RpcChainReader:
        del settings, chain
        return RpcChainReader(ground.slug, urls or [ground.chain.url], config_of(ground.slug))

    return ChainComparison(service.settings, service.database, open_reader)


async def compare_due(ground: ChainWorld, urls: Sequence[str] = ()) -> None:
    """Run the due comparison with these endpoints. The last endpoint is queried first."""
    await compare_chain(make_comparison(ground, urls), ground.slug)


async def next_day(ground: ChainWorld) -> None:
    await ground.world.rows(
        "UPDATE reconciliation_run SET created_at = created_at - interval '1 day'"
    )


async def newest_run(ground: ChainWorld, account_id: int | None = None) -> RunDetails:
    run = (await ground.world.perform(ListReconciliationRuns(account_id=account_id)))[0]
    return await ground.world.perform(ShowReconciliationRun(run_id=run.id))


async def case_subjects(ground: ChainWorld) -> list[str]:
    return sorted(case.subject or "" for case in await ground.world.perform(ListCases()))
