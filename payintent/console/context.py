"""The stores, use cases and settings of the operator's console."""

from dataclasses import dataclass
from uuid import UUID

from starlette.requests import Request

from payintent.api.application import require_state
from payintent.api.authentication_failures import Attempts
from payintent.api.oidc.provider import IdentityProvider
from payintent.api.viewer import ViewerReader
from payintent.config import Settings
from payintent.encryption import Encryption
from payintent.onchain.compare_endpoints import EndpointComparison
from payintent.operations.base import OperationContext
from payintent.payments.change_feed import ChangeFeed
from payintent.payments.overview_cache import OverviewCache
from payintent.storage.database import Database
from payintent.storage.replica import ReadDatabase


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleContext:
    settings: Settings
    database: Database
    reading: ReadDatabase  # for lists, which may be a few seconds old
    encryption: Encryption
    operation_context: OperationContext
    attempts: Attempts
    viewers: ViewerReader
    overview: OverviewCache
    endpoints: EndpointComparison
    change_feed: ChangeFeed[UUID]  # its end also ends the event stream of the first page
    identity_provider: IdentityProvider | None  # None: operators sign in with tokens only


def get_console_context(request: Request) -> ConsoleContext:
    return require_state(request, "console")
