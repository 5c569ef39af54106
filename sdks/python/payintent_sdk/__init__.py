"""The Payment Intent Service's API for a merchant's server, in Python."""

from payintent_sdk import errors, events, models, webhooks
from payintent_sdk.client import AsyncClient, Client
from payintent_sdk.errors import ApiError, PayintentError, PaymentDeniedError
from payintent_sdk.retries import RetryPolicy

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "PayintentError",
    "PaymentDeniedError",
    "RetryPolicy",
    "errors",
    "events",
    "models",
    "webhooks",
]
