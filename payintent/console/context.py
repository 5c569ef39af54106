"""The dependencies of the operator console's request handlers."""

from dataclasses import dataclass
from uuid import UUID

from starlette.requests import Request

from payintent.chains.compare_endpoints import EndpointComparison
from payintent.console.oidc.provider import IdentityProvider
from payintent.console.queue_counts import QueueCounts
from payintent.db.database import Database
from payintent.db.notify import ChangeFeed
from payintent.db.replica import ReadDatabase
from payintent.http.address_limits import AuthenticationAttempts
from payintent.http.application import require_state
from payintent.http.exports import ExportSlots
from payintent.http.viewer import ViewerReader
from payintent.operators.operation import OperationContext
from payintent.overview.cache import OverviewCache
from payintent.runtime.encryption import Encryption
from payintent.runtime.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleContext:
    settings: Settings
    database: Database
    read_database: ReadDatabase  # for lists; may lag by a few seconds
    encryption: Encryption
    operation_context: OperationContext
    attempts: AuthenticationAttempts
    viewers: ViewerReader
    overview: OverviewCache
    queue_counts: QueueCounts
    endpoints: EndpointComparison
    change_feed: ChangeFeed[UUID]  # event streams end when it closes
    exports: ExportSlots
    identity_provider: IdentityProvider | None  # None if only tokens can be used to sign in


def get_console_context(request: Request) -> ConsoleContext:
    return require_state(request, "console")
