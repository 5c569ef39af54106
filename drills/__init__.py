"""Drills: faults under load, with a table of what clients saw of them."""
