"""ECPay: the adapter, its API client, its check value and its refunds."""
