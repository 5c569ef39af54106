"""HTTP infrastructure: server, protocol, admission, bodies, errors, pagination and egress."""
