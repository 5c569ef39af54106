"""An emulator of ECPay's card payments: its API, its error responses and its payment page."""
