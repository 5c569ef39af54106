"""What every handler finds: the service, and the answers they have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from payintent.api.authentication import Authenticator
from payintent.api.authentication_failures import Attempts
from payintent.api.concurrent_creates import Replays
from payintent.api.rate_limits import AddressLimiter, Limiter
from payintent.api.readiness import Readiness
from payintent.api.viewer import Edge
from payintent.domain.errors import Code, Refused
from payintent.payments.change_feed import Lookout
from payintent.payments.serialization import encode
from payintent.service import Service


@dataclass(frozen=True, slots=True)
class Context:
    """One process's service, as the API uses it."""

    service: Service
    authenticator: Authenticator
    attempts: Attempts
    edge: Edge
    limiter: Limiter
    addresses: AddressLimiter
    replays: Replays
    lookout: Lookout
    readiness: Readiness


def context(request: Request) -> Context:
    """Give the context that the application was started with.

    Refused (`SERVICE_UNAVAILABLE`) while the service is being opened.
    """
    opened = cast("Context | None", getattr(request.app.state, "context", None))
    if opened is None:
        raise Refused(Code.SERVICE_UNAVAILABLE, "the service is being opened", retry_after_s=1)
    return opened


def json_answer(
    fields: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with a JSON object."""
    return Response(encode(fields), status, headers, "application/json")
