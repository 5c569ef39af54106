"""An emulator of ECPay's card payments: its API, its refusals and its payment page."""
