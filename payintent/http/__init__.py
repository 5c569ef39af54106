"""The HTTP server: protocol, admission, bodies, errors, pagination and egress rules."""
