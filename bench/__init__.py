"""The benchmark that measures every figure in the README in a single run on one machine."""

from payintent.runtime.log import configure_standard_streams

configure_standard_streams()
