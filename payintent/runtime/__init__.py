"""A process and its environment: settings, logging, tracing, encryption, ids and caches."""

#: Version of the service and of the API that it serves (spec section 9).
API_VERSION = "0.9.9"
