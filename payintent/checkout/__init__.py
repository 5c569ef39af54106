"""The hosted checkout page and its API, static files and browser SDK."""
