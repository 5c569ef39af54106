"""The version of the service and of the API it serves (spec section 9)."""

API_VERSION = "0.9.9"
