"""A Django shop that sells one book."""
