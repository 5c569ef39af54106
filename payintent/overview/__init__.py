"""Figures for the whole installation."""
