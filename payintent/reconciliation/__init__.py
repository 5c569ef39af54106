"""Gateways' own lists of payments and refunds, compared with our records by the worker."""
