"""The demo shop: the integration of a merchant, which uses only the public HTTP API."""
