"""`make drill-ha`: three databases in network namespaces, and their faults under load."""
