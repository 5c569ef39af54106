"""`python -m drills.ha` runs three databases in network namespaces, with faults under load."""
