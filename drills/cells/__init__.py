"""Two whole installations behind HAProxy, and their faults under load."""
