"""`python -m drills.ha`: three databases in network namespaces, and their faults under load."""
