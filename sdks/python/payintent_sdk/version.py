"""The version of this library, and of the API that it uses."""

VERSION = "1.0.0rc1"
API_VERSION = "0.9.9"
