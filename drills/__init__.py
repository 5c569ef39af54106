"""Drills: faults under load, with a table of what clients saw of them."""

from payintent.runtime.log import configure_standard_streams

configure_standard_streams()
