"""A command line for engineers who integrate the Payment Intent Service."""
