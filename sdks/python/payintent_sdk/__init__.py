"""A client for the Payment Intent Service, for use on a merchant's server."""

from payintent_sdk import deposits, errors, events, models, onchain, webhooks
from payintent_sdk.client import AsyncClient, Client
from payintent_sdk.errors import ApiError, PayintentError, PaymentDeniedError
from payintent_sdk.retries import RetryPolicy
from payintent_sdk.version import API_VERSION, VERSION

__all__ = [
    "API_VERSION",
    "VERSION",
    "ApiError",
    "AsyncClient",
    "Client",
    "PayintentError",
    "PaymentDeniedError",
    "RetryPolicy",
    "deposits",
    "errors",
    "events",
    "models",
    "onchain",
    "webhooks",
]
