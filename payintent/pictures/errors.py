"""What goes wrong with pictures."""


class NoPictureError(Exception):
    """A picture cannot be had or shown; the message says why, without its address."""
