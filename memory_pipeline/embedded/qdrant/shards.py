"""Open shards of the engine: opened at first use, few at a time, flushed often.

The engine runs one call at a time and holds the interpreter's lock meanwhile, so all of it happens in one thread.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import qdrant_edge as edge

from memory_pipeline.embedded.qdrant.engine import EngineCall, EngineFault
from memory_pipeline.embedded.qdrant.errors import ApiError, EngineFailed
from memory_pipeline.embedded.qdrant.indexes import match_indexes
from memory_pipeline.embedded.qdrant.schema import Collection

log = logging.getLogger(__name__)

COPY_PAGE = 500


@dataclass
class Shard:
    """One open shard, whether it holds writes that are not flushed, and when it was last used (monotonic seconds)."""

    engine: Any
    dirty: bool = False
    used_at: float = field(default_factory=time.monotonic)


class ShardPool:
    """The open shards under one folder, by folder name, the least recently used first.

    An open shard costs about 6 MB and 80 ms to open again, so a bounded number stays open.
    """

    def __init__(self, root: Path, max_open: int, idle_seconds: float) -> None:
        self._root = root
        self._max_open = max(max_open, 2)  # a damaged shard and its replacement
        self._idle_seconds = idle_seconds
        self._open: OrderedDict[str, Shard] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def create(self, collection: Collection) -> Shard:
        """Make the folder and shard of a new collection, on the disk when this returns."""
        with EngineCall():
            shard = Shard(edge.EdgeShard.create(str(self._root / collection.folder), collection.for_engine()))
            match_indexes(shard.engine, collection)
            shard.engine.flush()
        self._keep(collection.folder, shard)
        return shard

    def get(self, name: str, collection: Collection) -> Shard:
        """The shard of a collection, opened where it is not open.

        Raises:
            EngineFailed: it cannot be opened; the message says what to do.
        """
        shard = self._open.get(collection.folder)
        if shard is None:
            shard = self._load(name, collection)
            self._keep(collection.folder, shard)
        self._open.move_to_end(collection.folder)
        shard.used_at = time.monotonic()
        return shard

    def flush(self) -> None:
        """Bring to the disk what was acknowledged since the last time. Raises `EngineFailed`, after trying them all."""
        self._each(lambda folder: self._flush(folder, self._open[folder]), list(self._open))

    def close_idle(self) -> None:
        """Flush and close the shards that were not used for a while."""
        oldest = time.monotonic() - self._idle_seconds
        self._each(self.close, [folder for folder, shard in self._open.items() if shard.used_at < oldest])

    def close_all(self) -> None:
        """Flush and close every shard. Raises `EngineFailed`, after trying them all."""
        self._each(self.close, list(self._open))

    def close(self, folder: str) -> None:
        """Flush and close one shard, if it is open; it stays open if it cannot be flushed."""
        shard = self._open.get(folder)
        if shard is not None:
            self._flush(folder, shard)
            self.discard(folder)

    def discard(self, folder: str) -> None:
        """Close one shard without a flush: its log brings back what it acknowledged when it is opened again."""
        shard = self._open.pop(folder, None)
        if shard is None:
            return
        try:
            with EngineCall():
                shard.engine.close()
        except (EngineFault, ApiError) as failure:
            log.warning("shard %s did not close cleanly: %s", folder, failure)

    def _keep(self, folder: str, shard: Shard) -> None:
        self._open[folder] = shard
        while len(self._open) > self._max_open:
            oldest = next(iter(self._open))
            try:
                self.close(oldest)
            except EngineFailed as failure:  # not the fault of the collection that needs the place
                log.error("%s", failure.message)
                self.discard(oldest)

    def _load(self, name: str, collection: Collection) -> Shard:
        folder = self._root / collection.folder
        if not folder.is_dir():
            raise EngineFailed(f"the data of collection `{name}` is missing; delete it and index it again")
        try:
            with EngineCall():
                shard = Shard(edge.EdgeShard.load(str(folder)))
                match_indexes(shard.engine, collection)
        except (EngineFault, ApiError) as failure:
            log.error("shard %s of collection %s cannot be opened: %s", collection.folder, name, failure)
            reason = str(failure)[:200]
            raise EngineFailed(
                f"collection `{name}` cannot be opened; if it stays so, delete it and index it again ({reason})"
            ) from failure
        return shard

    def _flush(self, folder: str, shard: Shard) -> None:
        if not shard.dirty:
            return
        try:
            with EngineCall():
                shard.engine.flush()
        except (EngineFault, ApiError) as failure:
            raise EngineFailed(f"shard {folder} cannot be flushed: {failure}") from failure
        shard.dirty = False

    @staticmethod
    def _each(act: Callable[[str], None], folders: list[str]) -> None:
        failures = []
        for folder in folders:
            try:
                act(folder)
            except EngineFailed as failure:  # one that fails must not keep the others back
                failures.append(failure)
        if failures:
            raise failures[0]


def copy_points(source: Any, target: Any) -> None:
    """Copy the points of one engine shard with vectors and payload into an empty one.

    A point with a malformed vector, which a panic may leave, is left out: absent it is missed and written again, but
    without its vector it would only be found less often.
    """
    offset = None
    while True:
        request = edge.ScrollRequest(offset=offset, limit=COPY_PAGE, with_payload=True, with_vector=True)
        page, offset = source.scroll(request)
        whole = [edge.Point(p.id, p.vector, p.payload) for p in page if _well_formed(p.vector)]
        if len(whole) < len(page):
            log.error("left out of the copy: %s", [str(p.id) for p in page if not _well_formed(p.vector)])
        target.update(edge.UpdateOperation.upsert_points(whole))
        if offset is None:
            return


def _well_formed(vectors: Any) -> bool:
    named = vectors.values() if isinstance(vectors, dict) else ()
    return all(len(v.indices) == len(v.values) for v in named if isinstance(v, edge.SparseVector))
