"""Several processes as one program: the supervisor, its processes, and what they share."""
