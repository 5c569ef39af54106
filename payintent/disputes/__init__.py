"""Chargebacks, and the amounts that they hold."""
