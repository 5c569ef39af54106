"""Figures of the whole installation."""
