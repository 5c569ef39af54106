"""Drills that inject faults under load and report their effects on clients."""

from payintent.runtime.log import configure_standard_streams

configure_standard_streams()
