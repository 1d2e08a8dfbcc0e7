"""The index: collections, aliases, points and hybrid search, on whatever server an address names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar
from uuid import UUID

from qdrant_client import QdrantClient, models

from memory_pipeline.core.epoch import Epoch
from memory_pipeline.core.errors import CollectionMissing, IncompatibleCollection, IndexUnavailable
from memory_pipeline.core.projection import Projection
from memory_pipeline.core.text import is_storable
from memory_pipeline.index import wire
from memory_pipeline.index.connection import Connection
from memory_pipeline.index.points import BranchScores, IndexHit, IndexPoint, PointId, PointState, PointTooLarge
from memory_pipeline.index.queries import Branch, HybridQuery
from memory_pipeline.index.shape import INDEXED, CollectionShape, shape_of, stamp
from memory_pipeline.index.spread import DEFAULT, Spread

_MAX_REQUEST = 32 * 1024 * 1024  # bytes; what a server takes
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_POINTS = 500
_BATCH_PAYLOADS = 100
_READ_IDS = 1000

T = TypeVar("T")
AnyId = TypeVar("AnyId", bound=PointId)
_Write: TypeAlias = Callable[[QdrantClient], models.UpdateResult | list[models.UpdateResult]]


class VectorIndex:
    """One Qdrant server. Threads may share it.

    Every method raises `IndexUnavailable` where the server is down, takes too long, refuses or does not answer as
    Qdrant does, and those that need their collection `CollectionMissing` where it is not there.
    """

    def __init__(self, url: str, *, api_key: str | None, timeout: int, spread: Spread = DEFAULT) -> None:
        """Prepare the connection; nothing is sent yet.

        Args:
            url: address of the server.
            api_key: its key, none where it asks for none.
            timeout: seconds for one request.
            spread: how collections made by it lie in a cluster.

        Raises:
            ConfigurationError: `url` is not an address.
        """
        self._spread = spread
        self._connection = Connection(url, api_key=api_key, timeout=timeout)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def version(self) -> str:
        """The release of the server. It tells that without a key."""
        return self._connection.call("tell its version, asked for", "-", lambda client: client.info()).version

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- collections and aliases ---------------------------------------------------------------------------------

    def create(self, name: str, *, dimensions: int) -> None:
        """Create a collection with its payload indexes; finish one that an earlier call left half made.

        Raises:
            IncompatibleCollection: one of that name exists and differs; it is left as it is.
        """
        if self.shape(name) is None:
            try:
                self._connection.call("create", name, lambda client: _create(client, name, dimensions, self._spread))
            except IndexUnavailable:
                if self.shape(name) is None:  # or else somebody was faster
                    raise
        for field in self.require_compatible(name, dimensions).missing_indexes():
            self._write("index the payload of", name, _indexing(name, field))

    def shape(self, name: str) -> CollectionShape | None:
        """The shape of a collection, none where there is no such collection."""
        try:
            return shape_of(self._connection.call("describe", name, lambda client: client.get_collection(name)))
        except CollectionMissing:
            return None

    def require_compatible(self, name: str, dimensions: int) -> CollectionShape:
        """Return a collection's shape if it can hold projections with dense vectors of that length.

        Raises:
            IncompatibleCollection: it cannot; says how it differs.
        """
        shape = self.shape(name)
        if shape is None:
            raise CollectionMissing(name)
        if differences := shape.differences(dimensions):
            raise IncompatibleCollection(
                f"collection {name!r} cannot be used: {'; '.join(differences)}",
                hint="it is left as it is; memory-pipeline index --rebuild builds another one in its place",
            )
        return shape

    def add_lexical(self, name: str) -> None:
        """Give a collection the sparse vector that it lacks. Its points have none until it is written."""
        self._write("add a vector to", name, _adding_lexical(name))

    def stamp(self, name: str, epoch: Epoch) -> None:
        """Note on a collection how far the registry has come that is about to write to it."""
        self._connection.call("note on", name, lambda client: client.update_collection(name, metadata=stamp(epoch)))

    def drop(self, name: str) -> bool:
        """Delete a collection with all its points. False where there is none."""
        return self._connection.call("delete", name, lambda client: client.delete_collection(name))

    def point_alias(self, alias: str, name: str) -> None:
        """Let an alias name a collection, in one step: who searches by it sees the old one or the new one."""
        target = self.alias_target(alias)
        if target == name:
            return
        create = models.CreateAlias(collection_name=name, alias_name=alias)
        actions: list[Any] = [models.CreateAliasOperation(create_alias=create)]
        if target is not None:
            actions.insert(0, models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)))
        self._connection.call(
            f"point alias {alias!r} to", name, lambda client: client.update_collection_aliases(actions)
        )

    def alias_target(self, alias: str) -> str | None:
        """The collection that an alias names, none where there is no such alias."""
        answer = self._connection.call("list the aliases of", alias, lambda client: client.get_aliases())
        return next((entry.collection_name for entry in answer.aliases if entry.alias_name == alias), None)

    # --- points --------------------------------------------------------------------------------------------------

    def upsert(self, name: str, points: Sequence[IndexPoint]) -> None:
        """Write points, in batches bounded by bytes and count, and wait until they can be found.

        A point that is there at a newer revision is kept; the answer does not tell, so read back what matters. A call
        that failed halfway can be repeated.

        Raises:
            PointTooLarge: one point is more than a server takes; nothing was written.
        """
        for batch in _batches(points):
            self._write(f"write {len(batch)} points to", name, _upserting(name, batch))

    def set_payload(self, name: str, projections: Sequence[Projection]) -> None:
        """Replace the payload of points whose vectors stay, for revisions that left both texts unchanged.

        A point that is there at a newer revision is kept, one that is not there is not made: read back what matters.
        """
        for part in _bounded(projections, _payload_size, most=_BATCH_PAYLOADS):
            self._write(f"write {len(part)} payloads to", name, _overwriting(name, part))

    def read(self, name: str, ids: Sequence[AnyId]) -> dict[AnyId, PointState]:
        """What the points of these ids say of themselves; those that are not there are left out."""
        asked = {str(point_id): point_id for point_id in ids}
        states: dict[AnyId, PointState] = {}
        for part in _slices(ids):
            records = self._connection.call(f"read {len(part)} points of", name, _retrieving(name, part))
            states.update({asked[str(record.id)]: _state(record) for record in records if str(record.id) in asked})
        return states

    def delete(self, name: str, ids: Sequence[PointId]) -> None:
        """Delete points, whatever their revision; those that are not there are no error."""
        for part in _slices(ids):
            self._write(f"delete {len(part)} points of", name, _deleting(name, part))

    def count(self, name: str) -> int:
        """How many points there are, exactly."""
        return self._connection.call("count", name, lambda client: client.count(name, exact=True)).count

    def scroll(self, name: str, page: int, *, lacking: Branch | None = None) -> Iterator[list[PointState]]:
        """Every point in order of id, `page` at a time; no more than that is held in memory.

        Args:
            lacking: only points that have no vector of this branch.
        """
        start: PointId | None = None
        while True:
            states, start = self.scroll_page(name, page, start, lacking=lacking)
            if states:
                yield states
            if start is None:
                return

    def scroll_page(
        self, name: str, page: int, start: PointId | None, *, lacking: Branch | None = None
    ) -> tuple[list[PointState], PointId | None]:
        """One page of `scroll` from a point on, and the point from which the next one goes on; none at the end."""
        records, following = self._connection.call("scroll", name, _scrolling(name, page, start, lacking))
        return [_state(record) for record in records], None if following is None else _point_id(following)

    # --- search --------------------------------------------------------------------------------------------------

    def search(self, name: str, query: HybridQuery) -> list[IndexHit]:
        """The best hits of both branches together, best first, in one request. Empty where nothing is asked for."""
        if query.limit < 1:
            return []
        prefetches = wire.prefetches(query)
        if not prefetches:
            if self.shape(name) is None:  # it is still the server that says that nothing is found
                raise CollectionMissing(name)
            return []
        return self._found(name, query, query=wire.fusion(query), prefetch=prefetches)

    def search_branch(self, name: str, query: HybridQuery, branch: Branch) -> list[IndexHit]:
        """The best hits of one branch alone, scored by it alone."""
        vector = wire.branches(query).get(branch)
        if vector is None or query.limit < 1:
            return []
        return self._found(name, query, query=vector, using=branch)

    def branch_scores(self, name: str, ids: Sequence[UUID], query: HybridQuery) -> dict[UUID, BranchScores]:
        """The exact score of each point by each branch, in one request, however far down a branch would rank it."""
        vectors = wire.branches(query)
        scores: dict[Branch, dict[UUID, float]] = {"dense": {}, "bm25": {}}
        if vectors and ids:
            answers = self._connection.call("score hits of", name, _scoring(name, ids, list(vectors.items())))
            for branch, answer in zip(vectors, answers, strict=True):
                scores[branch] = {UUID(str(point.id)): point.score for point in answer.points}
        return {
            point_id: BranchScores(
                dense=scores["dense"].get(point_id, 0.0),
                bm25=scores["bm25"].get(point_id, 0.0),
            )
            for point_id in ids
        }

    def _found(self, name: str, asked: HybridQuery, **scoring: Any) -> list[IndexHit]:
        answer = self._connection.call(
            "search",
            name,
            lambda client: client.query_points(
                name,
                query_filter=wire.to_filter(asked.filter),
                limit=asked.limit,
                offset=asked.offset,
                with_payload=wire.STATE_FIELDS,
                **scoring,
            ),
        )
        return [_hit(point) for point in answer.points]

    def _write(self, operation: str, name: str, request: _Write) -> None:
        """Send a write; what the server has only noted down does not count as done."""
        answer = self._connection.call(operation, name, request)
        for result in answer if isinstance(answer, list) else [answer]:
            if result.status != models.UpdateStatus.COMPLETED:
                raise IndexUnavailable(
                    f"Qdrant at {self._connection.address} did not {operation} collection {name!r} yet: "
                    f"{result.status}",
                    hint="try again; repeating it is safe",
                )


def _create(client: QdrantClient, name: str, dimensions: int, spread: Spread) -> bool:
    return client.create_collection(
        name,
        shard_number=spread.shards,
        replication_factor=spread.replicas,
        write_consistency_factor=spread.write_consistency,
        vectors_config={"dense": models.VectorParams(size=dimensions, distance=models.Distance.COSINE)},
        sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=models.Modifier.IDF)},
    )


def _indexing(name: str, field: str) -> _Write:
    return lambda client: client.create_payload_index(name, field, field_schema=INDEXED[field], wait=True)


def _adding_lexical(name: str) -> _Write:
    lexical = models.SparseVectorNameConfig(sparse=models.SparseVectorConfig(modifier=models.Modifier.IDF))
    return lambda client: client.create_vector_name(name, wire.BM25, lexical, wait=True)


def _upserting(name: str, batch: list[IndexPoint]) -> _Write:
    content = [wire.to_point(point) for point in batch]
    fence = wire.not_newer(batch[0].projection.revision)
    return lambda client: client.upsert(name, content, wait=True, update_filter=fence)


def _overwriting(name: str, projections: Sequence[Projection]) -> _Write:
    operations = [
        models.OverwritePayloadOperation(
            overwrite_payload=models.SetPayload(payload=item.payload(), filter=wire.not_newer_point(item))
        )
        for item in projections
    ]

    def send(client: QdrantClient) -> list[models.UpdateResult]:
        answers = client.batch_update_points(name, operations, wait=True)
        if len(answers) != len(operations):
            raise ValueError(f"{len(answers)} answers to {len(operations)} writes")
        return answers

    return send


def _deleting(name: str, ids: list[models.ExtendedPointId]) -> _Write:
    return lambda client: client.delete(name, models.PointIdsList(points=ids), wait=True)


def _retrieving(name: str, ids: list[models.ExtendedPointId]) -> Callable[[QdrantClient], list[models.Record]]:
    return lambda client: client.retrieve(name, ids, with_payload=wire.STATE_FIELDS)


def _scrolling(
    name: str, page: int, start: PointId | None, lacking: Branch | None
) -> Callable[[QdrantClient], tuple[list[models.Record], models.ExtendedPointId | None]]:
    offset = None if start is None else wire.to_id(start)
    without = models.Filter(must_not=[models.HasVectorCondition(has_vector=lacking)]) if lacking else None
    return lambda client: client.scroll(
        name, scroll_filter=without, limit=page, offset=offset, with_payload=wire.STATE_FIELDS
    )


def _scoring(
    name: str, ids: Sequence[UUID], vectors: list[tuple[Branch, wire.QueryVector]]
) -> Callable[[QdrantClient], list[models.QueryResponse]]:
    these = models.Filter(must=[wire.among(ids)])
    exact = models.SearchParams(exact=True)
    searches = [
        models.QueryRequest(query=vector, using=branch, filter=these, limit=len(ids), params=exact)
        for branch, vector in vectors
    ]

    def send(client: QdrantClient) -> list[models.QueryResponse]:
        answers = client.query_batch_points(name, requests=searches)
        if len(answers) != len(searches):
            raise ValueError(f"{len(answers)} answers to {len(searches)} searches")
        return answers

    return send


def _batches(points: Sequence[IndexPoint]) -> list[list[IndexPoint]]:
    """Batches of one revision each, for a batch has one fence, the oldest revision first."""
    ordered = sorted(points, key=lambda point: point.projection.revision)
    groups = [list(group) for _, group in groupby(ordered, key=lambda point: point.projection.revision)]
    return [batch for group in groups for batch in _bounded(group, _size, most=_BATCH_POINTS)]


def _bounded(items: Sequence[T], size: Callable[[T], int], *, most: int) -> list[list[T]]:
    """Batches bounded by bytes and count; one that is above the bytes alone stands alone."""
    batches: list[list[T]] = []
    total = 0
    for item in items:
        length = size(item)
        if not batches or len(batches[-1]) == most or total + length > _BATCH_BYTES:
            batches.append([])
            total = 0
        batches[-1].append(item)
        total += length
    return batches


def _size(point: IndexPoint) -> int:
    """Bytes that a point takes as JSON, at most."""
    numbers = 24 * point.dense.size + 36 * len(point.lexical.indices)
    size = numbers + _payload_size(point.projection)
    if size > _MAX_REQUEST:
        raise PointTooLarge(point.projection.card_id, size, _MAX_REQUEST)
    return size


def _payload_size(projection: Projection) -> int:
    """Bytes that a payload takes as JSON, with what stands around it, at most."""
    return len(json.dumps(projection.payload())) + 256


def _slices(ids: Sequence[PointId]) -> Iterator[list[models.ExtendedPointId]]:
    for start in range(0, len(ids), _READ_IDS):
        yield [wire.to_id(point_id) for point_id in ids[start : start + _READ_IDS]]


def _state(record: models.Record) -> PointState:
    return PointState(**_fields(record))


def _hit(point: models.ScoredPoint) -> IndexHit:
    return IndexHit(**_fields(point), score=point.score)


def _fields(point: models.Record | models.ScoredPoint) -> dict[str, Any]:
    payload = point.payload or {}
    revision = payload.get("revision")
    return {
        "point_id": _point_id(point.id),
        "ref": _text(payload.get("ref")),
        "kind": _text(payload.get("kind")),
        "revision": revision if isinstance(revision, int) else 0,
        "projection_sha256": _text(payload.get("projection_sha256")),
    }


def _point_id(value: models.ExtendedPointId) -> PointId:
    return value if isinstance(value, int) else UUID(str(value))


def _text(value: object) -> str:
    """A text of a payload. What PostgreSQL cannot hold is nobody's id or hash."""
    return value if isinstance(value, str) and is_storable(value) else ""
