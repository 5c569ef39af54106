"""Drills: faults under load, with a table of what clients saw of them."""

from payintent.runtime.log import write_any_text

write_any_text()
