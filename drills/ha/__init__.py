"""`python -m drills.ha` runs three databases in network namespaces, and injects faults."""
