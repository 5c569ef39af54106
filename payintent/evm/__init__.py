"""The EVM client: reads blocks, logs and transactions from endpoints that may lag or be wrong."""
