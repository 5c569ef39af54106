"""The arrows of the state diagram, one file each; `advance` is the only place a status changes."""
