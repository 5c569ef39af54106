"""Emulators of the gateways, each a process that imports nothing of payintent."""
