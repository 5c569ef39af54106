"""Create chain readers from the settings."""

from payintent.chains.store import ChainRecord
from payintent.evm.chain_reader import Finality, ReaderConfig, RpcChainReader, open_chain_reader
from payintent.runtime.log import get_logger
from payintent.runtime.settings import Settings

_log = get_logger("watching")


def open_configured_reader(settings: Settings, chain: ChainRecord) -> RpcChainReader | None:
    """Create the reader of a chain that has endpoints; return None if its settings are invalid."""
    try:
        config = ReaderConfig(
            network_id=chain.network_id,
            finality=Finality(chain.finality),
            confirmations=chain.confirmations or 0,
            instant_finality=chain.instant_finality,
            tls=settings.client_tls,
        )
        return open_chain_reader(chain.slug, settings.endpoints[chain.slug], config)
    except ValueError as error:
        _log.error("chain_not_watched", chain=chain.slug, why=str(error))
        return None
