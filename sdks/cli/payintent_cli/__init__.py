"""The Payment Intent Service at a merchant engineer's command line."""
