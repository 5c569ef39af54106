"""The EVM client: reads blocks, logs and receipts from endpoints that may lag, fail and lie."""
