"""Collections on the disk: the registry, the shards' folders and the open shards, kept in step.

A collection's folder is made before it enters the registry and removed after it left, so that a kill in between leaves
a folder that no collection names. Such folders are swept at the start.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import qdrant_edge as edge

from memory_pipeline.embedded.qdrant.body import Json
from memory_pipeline.embedded.qdrant.engine import EngineCall, EngineFault, EnginePanic
from memory_pipeline.embedded.qdrant.errors import ApiError, EngineFailed, NotServed, WrongInput
from memory_pipeline.embedded.qdrant.indexes import create_index, drop_index
from memory_pipeline.embedded.qdrant.registry import Registry, State, sync_folder
from memory_pipeline.embedded.qdrant.schema import Collection, DenseVector, SparseVector
from memory_pipeline.embedded.qdrant.shards import Shard, ShardPool, copy_points

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_OPEN_SHARDS = 32
IDLE_SECONDS = 300.0


class Storage:
    """All that one server keeps under one folder. Names are names of collections or, to read and write points, aliases.

    Raises:
        NotFound: no collection or alias has the name.
        EngineFailed: the engine broke down on it.
    """

    def __init__(self, root: Path, max_open: int = MAX_OPEN_SHARDS, idle_seconds: float = IDLE_SECONDS) -> None:
        self._shards_root = root / "collections"
        self._shards_root.mkdir(parents=True, exist_ok=True)
        self._registry = Registry(root / "registry.json")
        self._pool = ShardPool(self._shards_root, max_open, idle_seconds)
        self._operations = itertools.count()
        self._sweep()

    @property
    def state(self) -> State:
        """The collections and aliases that there are."""
        return self._registry.state

    def collection(self, name: str) -> Collection:
        """What the collection is."""
        return self.state.collections[self.state.resolve(name)]

    def create(self, name: str, collection: Collection) -> None:
        """Add an empty collection, on the disk when this returns."""
        self.state.refuse_taken(name)
        self._make(collection)
        self._registry.commit(self.state.with_collection(name, collection))

    def delete(self, name: str) -> bool:
        """Remove a collection and its aliases; false where there is none. An alias is not followed."""
        collection = self.state.collections.get(name)
        if collection is None:
            return False
        self._registry.commit(self.state.without_collection(name))
        self._remove(collection)
        return True

    def change_aliases(self, change: Callable[[State], State]) -> None:
        """Apply a change of aliases as one write of the registry, or not at all."""
        self._registry.commit(change(self.state))

    def read(self, name: str, use: Callable[[Any], T]) -> T:
        """What a call of the engine on the collection's shard returns."""
        actual = self.state.resolve(name)
        collection = self.state.collections[actual]
        shard = self._pool.get(actual, collection)
        try:
            with EngineCall():
                return use(shard.engine)
        except EnginePanic as panic:
            self._pool.discard(collection.folder)
            raise _failed(actual, panic) from panic
        except EngineFault as fault:
            raise _failed(actual, fault) from fault

    def write(self, name: str, operation: Any) -> int:
        """Apply one operation of the engine to the collection's shard; a number for it, rising."""
        actual = self.state.resolve(name)
        collection = self.state.collections[actual]
        shard = self._pool.get(actual, collection)
        shard.dirty = True
        try:
            with EngineCall():
                shard.engine.update(operation)
        except EnginePanic as panic:
            self._move_to_new_shard(actual, collection, shard)
            raise _failed(actual, panic) from panic
        except EngineFault as fault:
            self._pool.discard(collection.folder)  # opened again, it starts from what is on the disk
            raise _failed(actual, fault) from fault
        return next(self._operations)

    def set_metadata(self, name: str, changes: dict[str, Json]) -> None:
        """Merge keys into the collection's metadata, on the disk when this returns; a null removes its key."""
        collection = self.collection(name)
        merged = {**(collection.metadata or {}), **changes}
        left = {key: value for key, value in merged.items() if value is not None}
        self._replace(name, collection.model_copy(update={"metadata": left}))

    def set_index(self, name: str, field: str, schema: Json) -> int:
        """Make a payload index; it counts once it is in the registry."""
        number = self.write(name, create_index(field, schema))
        collection = self.collection(name)
        self._replace(name, collection.model_copy(update={"indexes": {**collection.indexes, field: schema}}))
        return number

    def drop_index(self, name: str, field: str) -> int:
        """Remove a payload index, if there is one."""
        collection = self.collection(name)
        left = {other: schema for other, schema in collection.indexes.items() if other != field}
        self._replace(name, collection.model_copy(update={"indexes": left}))
        return self.write(name, drop_index(field))

    def add_vector(self, name: str, vector_name: str, vector: DenseVector | SparseVector) -> int:
        """Add a vector to every point, absent until it is written; nothing happens where the same is there already."""
        collection = self.collection(name)
        there = collection.vector(vector_name)
        if there is not None and there != vector:
            raise WrongInput(f"vector '{vector_name}' already exists with different parameters; delete it first")
        if there is None:
            self.write(name, edge.UpdateOperation.delete_vector_name(vector_name))  # one left behind by a kill
            self.write(name, vector.creation(vector_name))
            self._replace(name, collection.with_vector(vector_name, vector))
        return next(self._operations)

    def drop_vector(self, name: str, vector_name: str) -> int:
        """Remove a vector from every point."""
        collection = self.collection(name)
        if collection.vector(vector_name) is None:
            raise WrongInput(f"Not existing vector name error: {vector_name}")
        if len(collection.dense) + len(collection.sparse) == 1:
            raise NotServed("collections without any vector")
        number = self.write(name, edge.UpdateOperation.delete_vector_name(vector_name))
        self._replace(name, collection.without_vector(vector_name))
        return number

    def flush(self) -> None:
        """Bring to the disk what was acknowledged, and close what is idle."""
        self._pool.flush()
        self._pool.close_idle()

    def close(self) -> None:
        """Flush and close every shard."""
        self._pool.close_all()

    def _replace(self, name: str, changed: Collection) -> None:
        self._registry.commit(self.state.with_collection(self.state.resolve(name), changed))

    def _make(self, collection: Collection) -> Shard:
        try:
            shard = self._pool.create(collection)
        except ApiError:
            self._remove(collection)
            raise
        except EngineFault as fault:
            self._remove(collection)
            raise EngineFailed(f"the collection's shard cannot be made: {fault}") from fault
        sync_folder(self._shards_root)
        return shard

    def _remove(self, collection: Collection) -> None:
        self._pool.discard(collection.folder)
        shutil.rmtree(self._shards_root / collection.folder, ignore_errors=True)  # what is left is swept at the start

    def _move_to_new_shard(self, name: str, collection: Collection, damaged: Shard) -> None:
        """Save what can be read of a shard that panicked in a write.

        Its log holds the write that made it panic, so that it could not be opened again, but its points can be read.
        """
        moved = collection.model_copy(update={"folder": str(uuid.uuid4())})
        try:
            fresh = self._make(moved)
            with EngineCall():
                copy_points(damaged.engine, fresh.engine)
                fresh.engine.flush()
        except (EngineFault, ApiError) as failure:
            log.error("collection %s panicked and could not be saved: %s", name, failure)
            self._remove(moved)
            self._pool.discard(collection.folder)
            return
        self._registry.commit(self.state.with_collection(name, moved))
        self._remove(collection)
        log.warning("collection %s panicked in a write; its points were moved to a new shard", name)

    def _sweep(self) -> None:
        named = {collection.folder for collection in self.state.collections.values()}
        for folder in self._shards_root.iterdir():
            if folder.is_dir() and folder.name not in named:
                log.info("removing %s, which no collection names", folder)
                shutil.rmtree(folder)


def _failed(name: str, fault: EngineFault) -> EngineFailed:
    log.error("collection %s: the engine failed: %s", name, fault)
    return EngineFailed(f"the engine failed on collection `{name}`: {str(fault)[:300]}")
