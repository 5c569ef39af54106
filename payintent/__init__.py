"""A self-hosted Payment Intent Service: one payment, any payment method, exactly one outcome."""
