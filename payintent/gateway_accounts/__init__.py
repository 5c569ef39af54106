"""Gateway accounts: credentials, circuit breakers and the call log."""
