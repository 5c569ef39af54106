"""Test mode: the test gateway, test cards, the test clock and the simulated buyer."""
