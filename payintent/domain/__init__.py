"""The rules of payments: pure functions and values; imports only the standard library."""
