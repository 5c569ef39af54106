"""Gateway emulators. Each is a separate process that does not import payintent."""
