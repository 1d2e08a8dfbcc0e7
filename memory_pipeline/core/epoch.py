"""How far a registry has come, as the registry and its index each keep it."""

from __future__ import annotations

from typing import NamedTuple


class Epoch(NamedTuple):
    """A registry's own id, and a counter that it raises before each write to the index."""

    lineage: str
    counter: int


def is_behind(registry: Epoch | None, index: Epoch | None) -> bool:
    """Whether an index was written by a registry that had come further than this one, or by another one.

    Args:
        registry: what the registry says; none before its first write.
        index: what a collection says; none where nothing was ever written to it.

    Read the index first: the registry commits its counter before the index gets it.
    """
    if index is None:
        return False
    return registry is None or index.lineage != registry.lineage or index.counter > registry.counter
