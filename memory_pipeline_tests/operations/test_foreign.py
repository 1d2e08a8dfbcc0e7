"""Only what the registry lists is ever altered, and what it lists is brought into shape or refused by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from qdrant_client import QdrantClient, models

from memory_pipeline.core.drift import DriftKind
from memory_pipeline.core.errors import IncompatibleCollection, NotIndexed
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations import propagate
from memory_pipeline.operations.embed import embed_dense
from memory_pipeline.operations.index import index
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.rebuild import rebuild
from memory_pipeline.operations.reconcile import reconcile
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.upkeep import sweep
from memory_pipeline_tests.flows import ABLATION, MORTALITY, READMISSION, ask, found, promote, revise
from memory_pipeline_tests.operations.sessions import change, rows
from memory_pipeline_tests.operations.strangers import digests, planted, raw_client


@pytest.fixture
def raw(services: Services) -> Iterator[QdrantClient]:
    with raw_client(services) as client:
        yield client


def test_collections_of_others_are_the_same_after_every_operation(
    services: Services, workspace: Workspace, raw: QdrantClient
) -> None:
    slug = workspace.slug
    with planted(raw, slug) as names:
        before = digests(raw, names)
        promote(services, slug, [ABLATION, READMISSION, MORTALITY])
        operations = [
            lambda: embed_dense(services, slug),
            lambda: drain(services, slug),
            lambda: index(services, slug),
            lambda: revise(services, slug, "mem-0002", detail="cambiata"),
            lambda: drain(services, slug),
            lambda: revise(services, slug, "mem-0003", status="deleted"),
            lambda: drain(services, slug),
            *[lambda: rebuild(services, slug)] * 2,
            lambda: change(services, slug, "UPDATE collections SET drop_after = now() WHERE drop_after IS NOT NULL"),
            lambda: sweep(services, slug),
            lambda: services.index.drop(f"memory__{slug}__5"),
            lambda: index(services, slug),
        ]
        for operation in operations:
            operation()
            assert digests(raw, names) == before
        assert [
            collection
            for (collection,) in rows(services, slug, "SELECT collection FROM collections ORDER BY collection")
        ] == [f"memory__{slug}__{number}" for number in (1, 3, 5)]
        assert set(found(ask(services, slug, "ablazione"))) == {"mem-0001", "mem-0002"}
        assert services.index.alias_target(f"memory__{slug}") == f"memory__{slug}__5"


def test_a_collection_that_somebody_put_in_the_place_of_ours_is_not_dropped_with_ours(
    services: Services, workspace: Workspace, raw: QdrantClient
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    index(services, slug)
    taken = f"memory__{slug}__1"
    raw.delete_collection(taken)
    raw.create_collection(taken, vectors_config=models.VectorParams(size=3, distance=models.Distance.DOT))
    before = digests(raw, [taken])

    with pytest.raises(IncompatibleCollection, match="index --rebuild"):
        index(services, slug)
    report = rebuild(services, slug)
    change(services, slug, "UPDATE collections SET drop_after = now() WHERE drop_after IS NOT NULL")

    assert sweep(services, slug) == ()
    assert sweep(services, slug) == ()
    assert digests(raw, [taken]) == before
    assert report.cards == 1
    assert found(ask(services, slug, "ablazione")) == ["mem-0001"]


def test_a_memory_collection_without_its_sparse_vector_gets_it_and_every_point_is_written_again(
    services: Services, workspace: Workspace, raw: QdrantClient
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION])
    index(services, slug)
    name = f"memory__{slug}__1"
    raw.delete_vector_name(name, "bm25")
    shape = services.index.shape(name)
    assert shape is not None
    assert shape.bm25 is None

    promote(services, slug, [MORTALITY], session="s2")
    report = drain(services, slug)

    assert (report.upserted, report.embedded, report.settled) == (3, 1, True)
    assert services.index.require_compatible(name, 512).bm25 == "idf"
    answer = ask(services, slug, "riammissione")
    assert (found(answer)[0], answer.proposals[0].scores.bm25 > 0) == ("mem-0002", True)


def test_an_alias_whose_name_somebody_s_collection_has_stops_nothing(
    services: Services, workspace: Workspace, raw: QdrantClient
) -> None:
    slug, taken = workspace.slug, f"memory__{workspace.slug}"
    raw.create_collection(taken, vectors_config=models.VectorParams(size=2, distance=models.Distance.DOT))
    try:
        promote(services, slug, [ABLATION])
        assert index(services, slug).drain.settled
        assert rebuild(services, slug).problem is not None
        change(services, slug, "UPDATE collections SET drop_after = now() WHERE drop_after IS NOT NULL")
        assert drain(services, slug).settled
        assert found(ask(services, slug, "ablazione")) == ["mem-0001"]
        assert DriftKind.WRONG_ALIAS in reconcile(services, slug).found.counts
        assert raw.get_collection(taken).config.params.vectors == models.VectorParams(
            size=2, distance=models.Distance.DOT
        )
    finally:
        raw.delete_collection(taken)
    assert reconcile(services, slug).mended
    assert services.index.alias_target(taken) == f"memory__{slug}__2"


def test_a_lost_collection_is_filled_whole_before_it_serves(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain that finds it lost has one change at hand, and every card to bring back."""
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION])
    index(services, slug)
    services.index.drop(f"memory__{slug}__1")
    promote(services, slug, [MORTALITY], session="s2")

    monkeypatch.setattr(propagate, "BATCH", 2)
    report = drain(services, slug, longest=0)
    assert (report.upserted, report.pending) == (2, 1), "one batch is always done"
    with pytest.raises(NotIndexed):
        ask(services, slug, "ablazione")
    assert drain(services, slug).settled
    assert set(found(ask(services, slug, "ablazione"))) == {"mem-0001", "mem-0002", "mem-0003"}
