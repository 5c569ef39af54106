"""The benchmark: every figure of the README, measured in one run on one machine."""
