"""What `doctor` says of the chains that have endpoints."""

from collections.abc import AsyncGenerator

from payintent.config import Settings
from payintent.onchain.chain_checks import Finding, examine
from payintent.onchain.refund_checks import examine_refunds
from payintent.onchain.watch_loop import reader_of
from payintent.service import Service, open_service
from payintent.storage.onchain import chains


async def chain_findings(chosen: Settings) -> AsyncGenerator[tuple[str, Finding]]:
    """Look at every chain that has endpoints; gives its slug with each finding."""
    service = await open_service(chosen)
    try:
        for slug in service.settings.endpoints:
            async for finding in _look(service, slug):
                yield slug, finding
    finally:
        await service.close()


async def _look(service: Service, slug: str) -> AsyncGenerator[Finding]:
    chain = await chains.chain(service.database, slug)
    reader = reader_of(service.settings, chain) if chain else None
    if chain is None or reader is None:
        yield Finding(False, "cannot be watched as it is set up")
        return
    cursor = await chains.cursor(service.database, slug)
    if cursor is not None and cursor.halted:
        yield Finding(False, f"halted: {cursor.halted}")
    tokens = await chains.tokens(service.database, slug)
    contracts = await chains.contracts(service.database, slug)
    try:
        async for finding in examine(reader, chain, tokens, contracts):
            yield finding
        refunder = service.refunders.get(slug)
        signer = refunder.signer if refunder else None
        async for finding in examine_refunds(signer, reader, chain, tokens, contracts):
            yield finding
    finally:
        await reader.close()
