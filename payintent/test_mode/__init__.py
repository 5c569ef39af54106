"""Test merchants: the test gateway, its cards, the clock and the simulated buyer."""
