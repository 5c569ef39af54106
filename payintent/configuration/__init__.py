"""An installation's configuration as a file."""
