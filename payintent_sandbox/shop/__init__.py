"""The demo shop: a merchant integration that uses only the public HTTP API."""
