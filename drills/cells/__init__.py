"""Faults and moves of cells under load: `make drill-cells`."""
