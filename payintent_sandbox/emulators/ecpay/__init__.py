"""A counterpart of ECPay's card payments: its wire, its refusals and its page, without a bank."""
