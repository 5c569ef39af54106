"""Disputes (chargebacks) and the amounts that they hold."""
