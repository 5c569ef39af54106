"""A command-line tool for engineers integrating the Payment Intent Service."""
