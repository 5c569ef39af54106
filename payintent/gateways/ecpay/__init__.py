"""The ECPay adapter."""
