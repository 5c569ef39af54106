"""A shop with one book, in Django."""
