"""EVM client that reads blocks, logs and transactions from endpoints that may lag or be wrong."""
