"""Dagster: the derivation of each workspace as assets, the use cases as jobs. Thin; the work is in `operations`."""
