"""The checks of `doctor` on chains with configured endpoints."""

from collections.abc import AsyncGenerator

from payintent.config import Settings
from payintent.onchain.chain_checks import CheckResult, check_chain
from payintent.onchain.refund_checks import check_refund_setup
from payintent.onchain.watch_loop import open_configured_reader
from payintent.service import Service, open_service
from payintent.storage.onchain import chains


async def chain_check_results(settings: Settings) -> AsyncGenerator[tuple[str, CheckResult]]:
    """Check every chain that has endpoints; yields its slug with each result."""
    service = await open_service(settings)
    try:
        for slug in service.settings.endpoints:
            async for finding in _check_chain(service, slug):
                yield slug, finding
    finally:
        await service.close()


async def _check_chain(service: Service, slug: str) -> AsyncGenerator[CheckResult]:
    chain = await chains.get_chain(service.database, slug)
    reader = open_configured_reader(service.settings, chain) if chain else None
    if chain is None or reader is None:
        yield CheckResult(False, "cannot be watched with this configuration")
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
