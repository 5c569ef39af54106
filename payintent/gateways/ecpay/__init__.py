"""ECPay: the adapter, its API, its check value and its refunds."""
