"""The gateway adapters of this package."""

from collections.abc import Mapping

from payintent.config import Settings
from payintent.domain.gateway import Gateway
from payintent.evm.refund_sender import RefundSenders
from payintent.gateways.ecpay.adapter import EcpayGateway
from payintent.gateways.http_client import GatewayHttpClient
from payintent.gateways.onchain import OnchainGateway
from payintent.gateways.simulator import SimulatorGateway
from payintent.gateways.stripe.adapter import StripeGateway
from payintent.gateways.test_gateway import TestGateway
from payintent.gateways.twoc2p.adapter import TwoC2pGateway
from payintent.storage.database import Database
from payintent.storage.onchain.evidence import DatabaseOnchainRecords
from payintent.storage.test_gateway import DatabaseTestGatewayRecords

_OVER_HTTP = (SimulatorGateway, EcpayGateway, StripeGateway, TwoC2pGateway)
#: Provider names that installed gateway packages must not use.
BUILT_IN = frozenset({adapter.provider for adapter in (*_OVER_HTTP, OnchainGateway, TestGateway)})


def open_built_in_gateways(
    http: GatewayHttpClient, database: Database, settings: Settings, refunders: RefundSenders
) -> dict[str, Gateway]:
    adapters: tuple[Gateway, ...] = (
        *(adapter(http) for adapter in _OVER_HTTP),
        OnchainGateway(DatabaseOnchainRecords(database), settings.api_base, refunders),
        TestGateway(DatabaseTestGatewayRecords(database), settings.pages_base),
    )
    return {gateway.provider: gateway for gateway in adapters}


def with_test_gateway(
    built_in: Mapping[str, Gateway], others: Mapping[str, Gateway]
) -> Mapping[str, Gateway]:
    """Add the test gateway, which is internal, to adapters that replace the external gateways."""
    return {TestGateway.provider: built_in[TestGateway.provider], **others}
