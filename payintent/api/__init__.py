"""The HTTP API: parses requests and writes answers; the decisions are made in `payments`."""
