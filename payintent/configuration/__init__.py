"""The configuration of an installation as a file."""
