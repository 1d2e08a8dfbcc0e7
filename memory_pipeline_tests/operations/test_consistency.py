"""Drift of every kind: planted, found by name, mended, and gone."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from qdrant_client import QdrantClient, models

from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.drift import DriftKind, Finding
from memory_pipeline.core.errors import (
    BadInput,
    IncompatibleCollection,
    IndexBusy,
    RegistryRestored,
    WorkspaceRetired,
)
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import Projection, point_id, project
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.index.vector_index import VectorIndex
from memory_pipeline.operations.consistency import DriftReport, Scan, check_consistency, scan_page
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.reconcile import _Mending, reconcile
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import create_workspace
from memory_pipeline.store import cards, generations, propagations
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation
from memory_pipeline_tests.flows import ask, found, promote, revise
from memory_pipeline_tests.operations.sessions import retire
from memory_pipeline_tests.operations.strangers import raw_client

CONCEPTS = [{"subject": f"concetto {name}", "detail": f"regola del concetto {name}"} for name in "abcdefg"]
PAGE = 3
"""Cards a page: seven of them make three."""


@dataclass(frozen=True)
class Scene:
    """A workspace with seven memories, all in its index."""

    services: Services
    workspace: str
    raw: QdrantClient
    """The server, past the pipeline."""

    @property
    def generation(self) -> Generation:
        with self.services.database.transaction(Role.INDEXER, self.workspace) as tx:
            serving = generations.serving(tx, self.workspace)
        assert serving is not None
        return serving

    @property
    def collection(self) -> str:
        return self.generation.collection

    def projection(self, of: str = "mem-0002", **fields: object) -> Projection:
        """What the point of a card must hold, but for some fields."""
        with self.services.database.transaction(Role.INDEXER, self.workspace) as tx:
            card = cards.get_many(tx, self.workspace, [of])[of]
        return project(card, self.generation.format).model_copy(update=fields)

    def put(self, projection: Projection, *, lexical: bool = True) -> None:
        """Write a point past the pipeline, whatever is there."""
        index = self.generation.format
        vector = encoder_of(index.language, profile_named(index.profile)).document(
            projection.lexical_text if lexical else ""
        )
        self.services.index.delete(self.collection, [projection.point_id])
        self.services.index.upsert(
            self.collection, [IndexPoint(projection, np.full(index.dimensions, 0.5, dtype=np.float32), vector)]
        )

    def sql(self, statement: str, role: Role = Role.INDEXER) -> None:
        with self.services.database.transaction(role, self.workspace) as tx:
            assert tx.execute(statement).rowcount > 0

    def check(self) -> DriftReport:
        return check_consistency(self.services, self.workspace, page=PAGE)


@pytest.fixture(scope="module")
def raw(services: Services) -> Iterator[QdrantClient]:
    with raw_client(services) as client:
        yield client


@pytest.fixture(scope="module")
def scene(services: Services, raw: QdrantClient) -> Iterator[Scene]:
    """One for all kinds: each test leaves it as it was."""
    slug = f"t-{uuid.uuid4().hex[:12]}"
    create_workspace(services, Workspace(slug=slug, title="Test", language="it", default_database="cardio"))
    made = Scene(services, slug, raw)
    promote(services, slug, CONCEPTS)
    assert drain(services, slug).settled
    yield made
    with services.database.transaction(Role.INDEXER, slug) as tx:
        rows = tx.execute("SELECT collection FROM collections").fetchall()
    for row in rows:
        services.index.drop(row["collection"])


# --- every kind that a program mends -----------------------------------------------------------------------------


def lose(scene: Scene) -> None:
    scene.services.index.delete(scene.collection, [point_id("mem-0002")])


def lose_nearly_all(scene: Scene) -> None:
    scene.services.index.delete(scene.collection, [point_id(f"mem-000{number}") for number in range(1, 7)])


def hold_another_text(scene: Scene) -> None:
    scene.put(scene.projection(sha256="0" * 64))


def run_ahead(scene: Scene) -> None:
    scene.put(scene.projection(revision=99))


def misname(scene: Scene) -> None:
    scene.put(scene.projection(card_id="mem-0099"))


def edit_and_lose_the_queue(scene: Scene) -> None:
    revise(scene.services, scene.workspace, "mem-0002", detail="un testo nuovo che la coda non ha visto")
    scene.sql("UPDATE propagations SET state = 'done', settled_at = now() WHERE state = 'pending'")


def change_past_the_queue(scene: Scene) -> None:
    with scene.services.database.transaction(Role.OWNER, scene.workspace) as tx:
        tx.execute("ALTER TABLE cards DISABLE TRIGGER card_changes")
        tx.execute("UPDATE cards SET detail = 'cambiato alle spalle' WHERE card_id = 'mem-0002'")
        tx.execute("ALTER TABLE cards ENABLE TRIGGER card_changes")


def take_for_an_exemplar(scene: Scene) -> None:
    filters = scene.projection().filters.model_copy(update={"kind": CardKind.EXEMPLAR})
    scene.put(scene.projection(filters=filters))


def forget_what_was_seen(scene: Scene) -> None:
    scene.sql("UPDATE projections SET acknowledged_sha256 = NULL WHERE card_id = 'mem-0002'")


def forget_the_card(scene: Scene) -> None:
    scene.sql("DELETE FROM projections WHERE card_id = 'mem-0002'")


def lose_the_sparse_vector(scene: Scene) -> None:
    scene.put(scene.projection(), lexical=False)


def lose_the_dense_vector(scene: Scene) -> None:
    wanted = scene.projection()
    sparse = models.SparseVector(indices=[1], values=[1.0])
    point = models.PointStruct(id=str(wanted.point_id), vector={"bm25": sparse}, payload=wanted.payload())
    scene.services.index.delete(scene.collection, [wanted.point_id])
    scene.raw.upsert(scene.collection, [point], wait=True)


def add_an_orphan(scene: Scene) -> None:
    scene.put(scene.projection(card_id="mem-9999", point_id=point_id("mem-9999")))


def add_a_stranger(scene: Scene) -> None:
    scene.raw.upsert(scene.collection, [models.PointStruct(id=7, vector={}, payload={"city": "Roma"})], wait=True)


def add_a_point_that_names_what_postgresql_cannot_hold(scene: Scene) -> None:
    point = models.PointStruct(id=8, vector={}, payload={"ref": "mem-0002\x00", "projection_sha256": "\x00"})
    scene.raw.upsert(scene.collection, [point], wait=True)


def let_a_deleted_card_come_back(scene: Scene) -> None:
    wanted = scene.projection("mem-0007")
    revise(scene.services, scene.workspace, "mem-0007", status="deleted")
    assert drain(scene.services, scene.workspace).settled
    scene.sql("DELETE FROM tombstones")  # long after: no removal is looked at again
    scene.put(wanted)


def add_a_second_point(scene: Scene) -> None:
    scene.put(scene.projection(point_id=uuid.uuid4()))


def drop_the_collection(scene: Scene) -> None:
    scene.services.index.drop(scene.collection)


def drop_an_index(scene: Scene) -> None:
    scene.raw.delete_payload_index(scene.collection, "scope", wait=True)


def lose_the_alias(scene: Scene) -> None:
    alias = models.DeleteAlias(alias_name=scene.generation.alias)
    scene.raw.update_collection_aliases([models.DeleteAliasOperation(delete_alias=alias)])


PLANTS: list[tuple[Callable[[Scene], None], DriftKind, str | None, int]] = [
    (lose, DriftKind.MISSING, "mem-0002", 1),
    (lose_nearly_all, DriftKind.MISSING, "mem-0001", 6),
    (hold_another_text, DriftKind.STALE, "mem-0002", 1),
    (run_ahead, DriftKind.STALE, "mem-0002", 1),
    (misname, DriftKind.STALE, "mem-0002", 1),
    (edit_and_lose_the_queue, DriftKind.STALE, "mem-0002", 1),
    (change_past_the_queue, DriftKind.TEXT_CHANGED, "mem-0002", 1),
    (take_for_an_exemplar, DriftKind.WRONG_KIND, "mem-0002", 1),
    (forget_what_was_seen, DriftKind.UNACKNOWLEDGED, "mem-0002", 1),
    (forget_the_card, DriftKind.UNACKNOWLEDGED, "mem-0002", 1),
    (lose_the_sparse_vector, DriftKind.LACKS_VECTOR, "mem-0002", 1),
    (lose_the_dense_vector, DriftKind.LACKS_VECTOR, "mem-0002", 1),
    (add_an_orphan, DriftKind.ORPHAN, "mem-9999", 1),
    (add_a_stranger, DriftKind.ORPHAN, None, 1),
    (add_a_point_that_names_what_postgresql_cannot_hold, DriftKind.ORPHAN, None, 1),
    (add_a_second_point, DriftKind.DUPLICATE, "mem-0002", 1),
    (drop_the_collection, DriftKind.COLLECTION_MISSING, None, 1),
    (drop_an_index, DriftKind.WRONG_CONFIGURATION, None, 1),
    (lose_the_alias, DriftKind.WRONG_ALIAS, None, 1),
    (let_a_deleted_card_come_back, DriftKind.ORPHAN, "mem-0007", 1),
]


@pytest.mark.parametrize(("plant", "kind", "card", "count"), PLANTS, ids=[plant[0].__name__ for plant in PLANTS])
def test_drift_is_found_by_name_mended_and_gone(
    scene: Scene, plant: Callable[[Scene], None], kind: DriftKind, card: str | None, count: int
) -> None:
    plant(scene)

    dry = reconcile(scene.services, scene.workspace, dry_run=True, page=PAGE)
    mended = reconcile(scene.services, scene.workspace, page=PAGE)
    again = reconcile(scene.services, scene.workspace, page=PAGE)

    assert dry.found.counts == {kind: count}
    assert dry.found.findings[0].card_id == card
    assert mended.found.counts == dry.found.counts, "a dry run changes nothing"
    assert mended.complete
    assert (again.found.counts, again.queued, again.deleted, again.mended) == ({}, 0, 0, ())
    assert again.found.points == again.found.cards == dry.found.cards
    (record,) = scene.raw.retrieve(scene.collection, [str(point_id("mem-0002"))], with_vectors=True)
    assert isinstance(record.vector, dict)
    assert np.std(record.vector["dense"]) > 0, "a vector that was put there past the pipeline is gone too"
    assert "bm25" in record.vector


def test_a_point_that_names_another_card_is_told_once_and_is_no_orphan(scene: Scene) -> None:
    misname(scene)
    add_an_orphan(scene)

    mended = reconcile(scene.services, scene.workspace, page=PAGE)

    assert mended.found.counts == {DriftKind.STALE: 1, DriftKind.ORPHAN: 1}
    assert (mended.queued, mended.deleted, mended.complete) == (1, 1, True)
    assert scene.check().counts == {}


# --- what is no drift --------------------------------------------------------------------------------------------


def test_what_waits_in_the_outbox_is_told_and_is_no_drift(scene: Scene) -> None:
    revise(scene.services, scene.workspace, "mem-0001", detail="una modifica che aspetta")
    revise(scene.services, scene.workspace, "mem-0003", detail="una modifica che non riesce")
    scene.sql("UPDATE propagations SET state = 'dead' WHERE state = 'pending' AND card_id = 'mem-0003'")

    told = scene.check()

    assert (told.counts, told.pending, told.parked) == ({}, 1, 1)
    scene.sql("UPDATE propagations SET state = 'pending' WHERE state = 'dead'")
    assert reconcile(scene.services, scene.workspace).complete
    assert (scene.check().pending, scene.check().parked) == (0, 0)


def test_a_comparison_beside_a_writer_finds_nothing(scene: Scene) -> None:
    def write() -> None:
        for number in range(12):
            revise(scene.services, scene.workspace, "mem-0004", detail=f"modifica {number}")
            revise(scene.services, scene.workspace, "mem-0005", status="active" if number % 2 else "retired")
            drain(scene.services, scene.workspace, wait=60)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        counts = [scene.check().counts]
        while not writing.done():
            counts.append(scene.check().counts)
        writing.result()

    assert all(found == {} for found in counts)


def test_a_card_that_changes_while_it_is_looked_at_is_looked_at_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = VectorIndex.read, 0

    def reading(index: VectorIndex, name: str, ids: Sequence[Any]) -> Any:
        """Let the registry and the index move on, twice, after the registry was read and before the points are."""
        nonlocal reads
        reads += 1
        if reads < 3:
            with monkeypatch.context() as undone:
                undone.setattr(VectorIndex, "read", read)
                revise(scene.services, scene.workspace, "mem-0001", detail=f"cambiata nel mezzo {reads}")
                assert drain(scene.services, scene.workspace).settled
        return read(index, name, ids)

    monkeypatch.setattr(VectorIndex, "read", reading)
    told = scene.check()

    assert (told.counts, told.cards) == ({}, told.points)
    assert reads > 3, "the page, and two looks at the card"


def test_a_workspace_never_indexed_waits_and_a_card_lost_to_its_queue_is_missing(
    services: Services, workspace: Workspace, raw: QdrantClient
) -> None:
    promote(services, workspace.slug, CONCEPTS[:2])
    waits = check_consistency(services, workspace.slug)
    Scene(services, workspace.slug, raw).sql("UPDATE propagations SET state = 'done' WHERE card_id = 'mem-0002'")

    lost = check_consistency(services, workspace.slug)
    mended = reconcile(services, workspace.slug)

    assert (waits.counts, waits.pending, waits.collection, waits.points) == ({}, 2, None, None)
    assert (lost.counts, lost.pending, lost.findings[0].card_id) == ({DriftKind.MISSING: 1}, 1, "mem-0002")
    assert mended.complete
    assert (check_consistency(services, workspace.slug).counts, mended.found.points) == ({}, 2)


# --- a page at a time --------------------------------------------------------------------------------------------


def test_no_more_than_a_page_is_asked_for_at_a_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_nearly_all(scene)
    add_an_orphan(scene)
    asked: list[int] = []
    read, scroll = VectorIndex.read, VectorIndex.scroll_page

    def reading(index: VectorIndex, name: str, ids: Sequence[Any]) -> Any:
        asked.append(len(ids))
        return read(index, name, ids)

    def scrolling(index: VectorIndex, name: str, page: int, *rest: Any, **named: Any) -> Any:
        asked.append(page)
        return scroll(index, name, page, *rest, **named)

    monkeypatch.setattr(VectorIndex, "read", reading)
    monkeypatch.setattr(VectorIndex, "scroll_page", scrolling)
    told = check_consistency(scene.services, scene.workspace, page=PAGE, examples=2)
    monkeypatch.undo()

    assert told.counts == {DriftKind.MISSING: 6, DriftKind.ORPHAN: 1}
    assert len(told.findings) == 3
    assert max(asked) == PAGE
    assert reconcile(scene.services, scene.workspace, page=PAGE).complete


def test_a_round_of_single_pages_finds_the_same(scene: Scene) -> None:
    lose(scene)
    add_an_orphan(scene)
    pages = [scan_page(scene.services, scene.workspace, page=PAGE)]
    while pages[-1].next_cursor is not None:
        pages.append(scan_page(scene.services, scene.workspace, pages[-1].next_cursor, page=PAGE))

    told = scene.check()
    assert sorted(one.detail for page in pages for one in page.findings) == sorted(one.detail for one in told.findings)
    assert len(told.findings) == 2
    assert (sum(page.cards for page in pages), sum(page.points for page in pages)) == (told.cards, told.points)
    assert max(page.cards + page.points for page in pages) == PAGE
    assert reconcile(scene.services, scene.workspace, page=PAGE).complete


@pytest.mark.parametrize("cursor", ["", "cards", "cards:x", "points:zz", "decks:1", "cards:-1"])
def test_a_cursor_that_no_page_gave_is_refused(scene: Scene, cursor: str) -> None:
    with pytest.raises(BadInput, match="begin a new round"):
        scan_page(scene.services, scene.workspace, cursor)


# --- what is left alone ------------------------------------------------------------------------------------------


def test_a_point_that_is_no_longer_wrong_when_looked_at_again_stays(scene: Scene) -> None:
    mending = _Mending(scene.services, scene.workspace, PAGE, lambda _: None)
    orphan = Finding(kind=DriftKind.ORPHAN, point_id=str(point_id("mem-0001")), detail="it was one a moment ago")

    mending._mend(Scan.of(scene.services, scene.workspace, PAGE), [orphan])

    assert (mending.deleted, mending.doubtful) == (0, 1)
    assert scene.check().counts == {}


def test_another_index_than_the_one_that_was_compared_is_left_alone(scene: Scene) -> None:
    add_an_orphan(scene)
    scan = Scan.of(scene.services, scene.workspace, PAGE)
    compared = replace(scan, generation=scene.generation._replace(collection="memory__another__1"))
    mending = _Mending(scene.services, scene.workspace, PAGE, lambda _: None)

    mending._mend(compared, [one for page in scan.contents() for one in page])

    assert (mending.deleted, mending.doubtful) == (0, 1)
    assert reconcile(scene.services, scene.workspace).deleted == 1


def test_collections_of_others_are_never_touched_whatever_the_alias_says(scene: Scene) -> None:
    others = ["reference", f"{scene.generation.alias}__77"]
    raw = scene.raw
    for name in others:
        raw.create_collection(name, vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
        raw.upsert(name, [models.PointStruct(id=1, vector=[1, 2], payload={"ref": "mem-9999"})], wait=True)
    before = [_content(raw, name) for name in others]
    scene.services.index.point_alias(scene.generation.alias, others[1])
    add_an_orphan(scene)

    mended = reconcile(scene.services, scene.workspace)

    assert mended.found.counts == {DriftKind.WRONG_ALIAS: 1, DriftKind.ORPHAN: 1}
    assert scene.services.index.alias_target(scene.generation.alias) == scene.collection
    assert [_content(raw, name) for name in others] == before
    for name in others:
        raw.delete_collection(name)


def test_a_registry_that_is_behind_its_index_mends_nothing(scene: Scene) -> None:
    add_an_orphan(scene)
    lose(scene)
    shape = scene.services.index.shape(scene.collection)
    assert shape is not None
    assert shape.epoch is not None
    scene.services.index.stamp(scene.collection, shape.epoch._replace(counter=shape.epoch.counter + 1000))

    with pytest.raises(RegistryRestored):
        reconcile(scene.services, scene.workspace)

    with pytest.raises(RegistryRestored):
        scene.check()
    scene.services.index.stamp(scene.collection, shape.epoch)
    assert reconcile(scene.services, scene.workspace).complete


def test_an_index_that_another_writer_keeps_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_pipeline.operations.reconcile.WAIT_SECONDS", 0.0)
    with scene.services.database.transaction(Role.INDEXER, scene.workspace) as tx:
        assert propagations.try_lock_drain(tx, scene.workspace)
        with pytest.raises(IndexBusy):
            reconcile(scene.services, scene.workspace)


def test_a_collection_without_its_sparse_vector_gets_it_and_is_filled(
    services: Services, workspace: Workspace, raw: QdrantClient
) -> None:
    scene = _indexed(services, workspace, raw)
    _replace_collection(scene, scene.generation.format.dimensions)

    told, mended = scene.check(), reconcile(services, workspace.slug)

    # The vector and eight payload indexes; the alias went with the collection that it named.
    assert told.counts == {DriftKind.WRONG_CONFIGURATION: 9, DriftKind.WRONG_ALIAS: 1, DriftKind.MISSING: 2}
    assert mended.complete
    assert scene.check().counts == {}
    assert found(ask(services, workspace.slug, "concetto a"))[0] == "mem-0001"


def test_an_incompatible_collection_is_named_and_never_replaced(
    services: Services, workspace: Workspace, raw: QdrantClient
) -> None:
    scene = _indexed(services, workspace, raw)
    _replace_collection(scene, 3)

    with pytest.raises(IncompatibleCollection, match="3 Cosine"):
        reconcile(services, workspace.slug)

    assert DriftKind.WRONG_CONFIGURATION in scene.check().counts
    assert services.index.count(scene.collection) == 0


def test_a_retired_workspace_is_compared_and_not_mended(
    services: Services, workspace: Workspace, raw: QdrantClient
) -> None:
    scene = _indexed(services, workspace, raw)
    lose(scene)
    retire(services, workspace.slug)

    assert scene.check().counts == {DriftKind.MISSING: 1}
    with pytest.raises(WorkspaceRetired):
        reconcile(services, workspace.slug)
    assert scene.check().counts == {DriftKind.MISSING: 1}


def _indexed(services: Services, workspace: Workspace, raw: QdrantClient) -> Scene:
    promote(services, workspace.slug, CONCEPTS[:2])
    assert drain(services, workspace.slug).settled
    return Scene(services, workspace.slug, raw)


def _replace_collection(scene: Scene, dimensions: int) -> None:
    """Another one under its name: a dense vector of that length and nothing else."""
    name, raw = scene.collection, scene.raw
    raw.delete_collection(name)
    dense = models.VectorParams(size=dimensions, distance=models.Distance.COSINE)
    raw.create_collection(name, vectors_config={"dense": dense})


def _content(raw: QdrantClient, name: str) -> list[str]:
    records, _ = raw.scroll(name, limit=100, with_payload=True, with_vectors=True)
    return [record.model_dump_json() for record in records]
