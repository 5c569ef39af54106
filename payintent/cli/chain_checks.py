"""What `doctor` says of the chains that have endpoints."""

from collections.abc import AsyncGenerator

from payintent.config import Settings
from payintent.onchain.chain_checks import CheckResult, check_chain
from payintent.onchain.refund_checks import check_refund_setup
from payintent.onchain.watch_loop import open_configured_reader
from payintent.service import Service, open_service
from payintent.storage.onchain import chains


async def chain_check_results(chosen: Settings) -> AsyncGenerator[tuple[str, CheckResult]]:
    """Look at every chain that has endpoints; gives its slug with each finding."""
    service = await open_service(chosen)
    try:
        for slug in service.settings.endpoints:
            async for finding in _look(service, slug):
                yield slug, finding
    finally:
        await service.close()


async def _look(service: Service, slug: str) -> AsyncGenerator[CheckResult]:
    chain = await chains.get_chain(service.database, slug)
    reader = open_configured_reader(service.settings, chain) if chain else None
    if chain is None or reader is None:
        yield CheckResult(False, "cannot be watched as it is set up")
        return
    cursor = await chains.get_cursor(service.database, slug)
    if cursor is not None and cursor.halted:
        yield CheckResult(False, f"halted: {cursor.halted}")
    tokens = await chains.list_tokens(service.database, slug)
    contracts = await chains.list_contracts(service.database, slug)
    try:
        async for finding in check_chain(reader, chain, tokens, contracts):
            yield finding
        refunder = service.refund_senders.get(slug)
        signer = refunder.signer if refunder else None
        async for finding in check_refund_setup(signer, reader, chain, tokens, contracts):
            yield finding
    finally:
        await reader.close()
