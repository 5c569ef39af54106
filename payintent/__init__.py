"""A self-hosted Payment Intent Service: one payment, any way to pay, exactly one outcome."""
