"""Available payment methods and their prices."""
