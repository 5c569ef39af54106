"""Two complete installations behind HAProxy, with faults under load."""
