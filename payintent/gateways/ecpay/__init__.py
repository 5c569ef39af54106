"""The gateway ECPay."""
