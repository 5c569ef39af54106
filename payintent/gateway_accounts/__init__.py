"""Accounts at gateways: credentials, the circuit breaker and the call log."""
