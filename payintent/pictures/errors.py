"""Errors of pictures."""


class NoPictureError(Exception):
    """A picture is unavailable; the message has the reason without the URL."""
