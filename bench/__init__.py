"""The benchmark: every figure of the README, measured in one run on one machine."""

from payintent.runtime.log import configure_standard_streams

configure_standard_streams()
