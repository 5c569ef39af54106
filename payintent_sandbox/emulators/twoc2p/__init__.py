"""An emulator of 2C2P's hosted page and maintenance API, for tests, in a separate process."""
