"""How a new collection is spread over the nodes of a cluster."""

from __future__ import annotations

from typing import NamedTuple


class Spread(NamedTuple):
    """What a collection is made with; where nothing is said, the server's own default holds."""

    shards: int | None = None
    replicas: int | None = None
    write_consistency: int | None = None
    """Copies that must have a write before it is acknowledged."""


DEFAULT = Spread()
