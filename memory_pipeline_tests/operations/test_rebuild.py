"""An index is built anew beside the one that serves: nothing is missed meanwhile, and what fails leaves the old one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from memory_pipeline import failpoints
from memory_pipeline.core.errors import (
    CollectionMissing,
    EmbedderUnavailable,
    IndexBusy,
    ModelChanged,
    ModelMissing,
    RebuildIncomplete,
    WorkspaceRetired,
)
from memory_pipeline.core.projection import point_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.generation import rebuild_due
from memory_pipeline.operations.index import index
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.rebuild import rebuild
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.upkeep import sweep
from memory_pipeline.operations.workspaces import WorkspaceChanges, retire_workspace, set_workspace
from memory_pipeline.store import propagations
from memory_pipeline.store.database import Role
from memory_pipeline_tests.embedding.scripted_ollama import DIMENSIONS, ScriptedOllama, serve
from memory_pipeline_tests.flows import (
    ABLATION,
    MORTALITY,
    READMISSION,
    ask,
    closed_port,
    found,
    promote,
    revise,
    with_settings,
)
from memory_pipeline_tests.operations.sessions import change, rows

STEPS = [name for name in failpoints.NAMES if name.startswith("rebuild:")]
ALL_STEPS = [*STEPS, "drain:stamped", "drain:written"]
GENERATIONS = "SELECT generation, state FROM generations ORDER BY generation"


@pytest.fixture
def scripted(services: Services) -> Iterator[tuple[ScriptedOllama, Services]]:
    """The stack with an embedder that misbehaves as told."""
    with serve() as server, with_settings(services, ollama_url=server.url, embedding_model="tiny") as changed:
        yield server, changed


def let_searches_end(services: Services, workspace: str) -> None:
    """Let the time pass after which no search can be reading an old collection."""
    change(services, workspace, "UPDATE collections SET drop_after = now() WHERE drop_after IS NOT NULL")


def _collections(services: Services, workspace: str) -> list[str]:
    """Those of a workspace that are on the server."""
    names = [name for (name,) in rows(services, workspace, "SELECT collection FROM collections ORDER BY collection")]
    return [name for name in names if services.index.shape(name) is not None]


def test_a_rebuild_calls_no_embedder_and_the_old_index_goes_once_no_search_can_read_it(
    services: Services, workspace: Workspace
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION, MORTALITY])
    index(services, slug)
    old = ask(services, slug, "ablazione")
    revise(services, slug, "mem-0003", status="deleted")

    with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as without_embedder:
        report = rebuild(without_embedder, slug)

    assert (report.cards, report.embedded, report.failed, report.resumed) == (2, 0, (), False)
    assert (report.replaced, report.collection) == (f"memory__{slug}__1", f"memory__{slug}__2")
    assert report.drain.settled
    assert rows(services, slug, GENERATIONS) == [(1, "replaced"), (2, "serving")]
    assert services.index.alias_target(f"memory__{slug}") == report.collection
    after = ask(services, slug, "ablazione")
    assert (found(after), after.generation) == (["mem-0001", "mem-0002"], 2)
    assert after.proposals[0].scores.dense == old.proposals[0].scores.dense

    assert sweep(services, slug) == ()
    assert services.index.count(f"memory__{slug}__1") == 3, "a search that read the old row a moment ago still works"
    let_searches_end(services, slug)
    drain(services, slug)
    assert _collections(services, slug) == [report.collection]
    assert rows(services, slug, "SELECT DISTINCT generation FROM projections") == [(2,)]
    assert found(ask(services, slug, "ablazione")) == ["mem-0001", "mem-0002"]
    assert services.index.alias_target(f"memory__{slug}") == report.collection


@pytest.mark.parametrize("step", ALL_STEPS)
def test_one_that_stops_at_any_step_leaves_a_whole_index_and_the_next_one_finishes(
    services: Services, workspace: Workspace, step: str
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION])
    index(services, slug)
    if step == "rebuild:dropped":
        rebuild(services, slug)
        let_searches_end(services, slug)

    with failpoints.armed(f"{step}:error"), pytest.raises(failpoints.Interrupted):
        rebuild(services, slug)
    assert found(ask(services, slug, "ablazione"))[0] == "mem-0001"
    promote(services, slug, [MORTALITY], session="s2")
    drain(services, slug)
    assert found(ask(services, slug, "mortalità"))[0] == "mem-0003"
    revise(services, slug, "mem-0002", status="deleted")

    report = rebuild(services, slug)

    assert report.drain.settled
    assert services.index.count(report.collection) == 2
    assert set(found(ask(services, slug, "ablazione e mortalità"))) == {"mem-0001", "mem-0003"}
    assert services.index.alias_target(f"memory__{slug}") == report.collection
    let_searches_end(services, slug)
    sweep(services, slug)
    assert _collections(services, slug) == [report.collection]
    assert index(services, slug).queued == 0


def test_searches_that_run_throughout_see_no_empty_or_wrong_answer_and_no_write_is_lost(
    services: Services, workspace: Workspace
) -> None:
    slug = workspace.slug
    concepts = [{"subject": f"concetto {number}", "detail": f"definizione numero {number}"} for number in range(40)]
    promote(services, slug, [ABLATION, *concepts])
    index(services, slug)
    done = threading.Event()
    seen: list[tuple[str, int, str]] = []
    failures: list[BaseException] = []

    def look() -> None:
        try:
            while not done.is_set():
                answer = ask(services, slug, "ablazione transcatetere", limit=1)
                seen.append((found(answer)[0], answer.generation, answer.proposals[0].card.detail))
        except BaseException as error:  # noqa: BLE001 - whatever a thread raises fails the test
            failures.append(error)

    def write(round_: int) -> None:
        revise(services, slug, "mem-0005", detail=f"cambiata nel giro {round_}")
        promote(services, slug, [{"subject": f"nuovo {round_}", "detail": f"nata {round_}"}], session=f"n{round_}")
        drain(services, slug)

    searcher = threading.Thread(target=look)
    searcher.start()
    try:
        for round_ in range(3):
            written: list[int] = []

            def progress(_: int, round_: int = round_, written: list[int] = written) -> None:
                if not written:  # in the middle of the filling, by the ordinary way
                    written.append(round_)
                    write(round_)

            report = rebuild(services, slug, progress)
            assert written == [round_]
            assert report.replayed >= 1
            let_searches_end(services, slug)
    finally:
        done.set()
        searcher.join()

    assert failures == []
    assert {(card, detail) for card, _, detail in seen} == {("mem-0001", ABLATION["detail"])}
    assert len({generation for _, generation, _ in seen}) >= 2
    assert services.index.count(report.collection) == 44
    assert found(ask(services, slug, "cambiata nel giro 2", limit=1)) == ["mem-0005"]
    assert found(ask(services, slug, "nuovo 2: nata 2", limit=1)) == ["mem-0044"]
    assert index(services, slug).queued == 0


# --- another model, language or profile ---------------------------------------------------------------------------


def test_another_model_is_switched_to_by_a_rebuild_and_the_old_one_serves_until_then(
    workspace: Workspace, services: Services, scripted: tuple[ScriptedOllama, Services]
) -> None:
    slug = workspace.slug
    server, other = scripted
    promote(services, slug, [ABLATION, READMISSION])
    index(services, slug)
    assert rebuild_due(services, slug) == ()
    assert any(difference.startswith("dimensions: ") for difference in rebuild_due(other, slug))

    # The settings want the other model, and its server does not have the old one.
    promote(services, slug, [MORTALITY], session="s2")
    report = drain(other, slug)
    assert (report.problem and report.problem.error, report.pending) == (ModelMissing.__name__, 1)
    assert found(ask(services, slug, "ablazione"))[0] == "mem-0001"
    revise(services, slug, "mem-0002", status="deleted")
    assert drain(other, slug).removed == 1, "what needs no embedding goes on"

    rebuilt = rebuild(other, slug)

    assert (rebuilt.cards, rebuilt.embedded) == (2, 2)
    shape = services.index.shape(rebuilt.collection)
    assert shape is not None
    assert shape.differences(DIMENSIONS) == ()
    assert rebuild_due(other, slug) == ()
    assert set(found(ask(other, slug, "ablazione"))) == {"mem-0001", "mem-0003"}
    assert len(rows(services, slug, "SELECT DISTINCT model_digest FROM dense_embeddings")) == 2
    let_searches_end(services, slug)
    sweep(services, slug)
    assert rows(services, slug, "SELECT DISTINCT model_digest FROM dense_embeddings") == [("d1",)]
    asked = len(server.batches)
    assert rebuild(other, slug).embedded == 0
    assert len(server.batches) == asked


def test_the_same_name_with_another_content_is_another_model(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services]
) -> None:
    slug = workspace.slug
    server, services = scripted
    promote(services, slug, [ABLATION])
    index(services, slug)
    server.digest = "d9"

    promote(services, slug, [READMISSION], session="s2")
    report = drain(services, slug)

    assert (report.problem and report.problem.error, report.pending, report.upserted) == (ModelChanged.__name__, 1, 0)
    assert any(difference.startswith("model_digest: d1 -> d9") for difference in rebuild_due(services, slug))
    assert rebuild(services, slug).cards == 2
    assert drain(services, slug, hurry=True).settled


def test_another_language_is_taken_by_a_rebuild(services: Services, workspace: Workspace) -> None:
    slug = workspace.slug
    promote(services, slug, [{"subject": "ricovero", "detail": "pazienti ricoverati"}])
    index(services, slug)
    set_workspace(services, slug, WorkspaceChanges(language="en"))
    assert [each.split(":")[0] for each in rebuild_due(services, slug)] == ["analyser", "language"]
    assert ask(services, slug, "paziente ricoverato").proposals[0].scores.bm25 > 0, "still Italian"

    report = rebuild(services, slug)

    assert report.embedded == 0
    assert rebuild_due(services, slug) == ()
    assert ask(services, slug, "paziente ricoverato").proposals[0].scores.bm25 == 0


# --- what keeps it from being switched to -------------------------------------------------------------------------


def test_one_that_would_lose_a_card_is_not_switched_to_and_goes_on_once_that_is_mended(
    workspace: Workspace, services: Services, scripted: tuple[ScriptedOllama, Services]
) -> None:
    slug = workspace.slug
    server, other = scripted
    promote(services, slug, [ABLATION, READMISSION])
    index(services, slug)
    server.fault = lambda texts: (
        (
            200,
            {"model": "tiny", "embeddings": [[0.0 if "riammissione" in text else 1.0] * DIMENSIONS for text in texts]},
        )
    )

    with pytest.raises(RebuildIncomplete, match="mem-0002: UselessVector"):
        rebuild(other, slug)
    assert rows(services, slug, GENERATIONS) == [(1, "serving"), (2, "building")]
    assert set(found(ask(services, slug, "riammissione"))) == {"mem-0001", "mem-0002"}

    server.fault = lambda _: None
    report = rebuild(other, slug)
    assert (report.resumed, report.cards, report.embedded) == (True, 2, 1)


def test_a_card_that_is_not_found_today_either_goes_on_waiting(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services]
) -> None:
    slug = workspace.slug
    server, services = scripted
    server.fault = lambda texts: (
        (
            200,
            {"model": "tiny", "embeddings": [[0.0 if "riammissione" in text else 1.0] * DIMENSIONS for text in texts]},
        )
    )
    promote(services, slug, [ABLATION, READMISSION])
    index(services, slug)

    report = rebuild(services, slug)

    assert ([card.card_id for card in report.failed], report.cards) == (["mem-0002"], 1)
    assert report.drain.pending == 1
    server.fault = lambda _: None
    assert drain(services, slug, hurry=True).settled


def test_points_that_changed_or_went_before_the_switch_are_mended(services: Services, workspace: Workspace) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION, MORTALITY])
    index(services, slug)
    with failpoints.armed("rebuild:filled:error"), pytest.raises(failpoints.Interrupted):
        rebuild(services, slug)
    collection = f"memory__{slug}__2"
    services.index.delete(collection, [point_id("mem-0001")])
    change(services, slug, "DELETE FROM projections WHERE generation = 2 AND card_id = 'mem-0002'")

    report = rebuild(services, slug)

    assert (report.resumed, report.mended, report.cards) == (True, 1, 3)
    assert found(ask(services, slug, "ablazione"))[0] == "mem-0001"
    assert index(services, slug).queued == 0


def test_one_that_was_left_is_given_up_once_something_else_is_wanted(services: Services, workspace: Workspace) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    index(services, slug)
    with failpoints.armed("rebuild:filled:error"), pytest.raises(failpoints.Interrupted):
        rebuild(services, slug)
    set_workspace(services, slug, WorkspaceChanges(language="en"))

    report = rebuild(services, slug)

    assert not report.resumed
    assert rows(services, slug, GENERATIONS) == [(1, "replaced"), (2, "failed"), (3, "serving")]
    ((failure,),) = rows(services, slug, "SELECT failure FROM generations WHERE state = 'failed'")
    assert "language: it -> en" in failure
    assert services.index.shape(f"memory__{slug}__2") is None, "nobody searched it: it goes at once"


def test_one_builder_at_a_time_and_a_drain_that_keeps_its_turn(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    index(services, slug)
    with services.database.transaction(Role.INDEXER, slug) as other:
        assert propagations.try_lock_rebuild(other, slug)
        with pytest.raises(IndexBusy):
            rebuild(services, slug)
    monkeypatch.setattr("memory_pipeline.operations.rebuild.WAIT_SECONDS", 0.05)
    with services.database.transaction(Role.INDEXER, slug) as other:
        assert propagations.try_lock_drain(other, slug)
        with pytest.raises(IndexBusy):
            rebuild(services, slug)
    assert rebuild(services, slug).resumed


def test_a_workspace_that_is_retired_meanwhile_keeps_its_old_index(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    index(services, workspace.slug)
    retired: list[int] = []

    def retire_once(_: int) -> None:
        if not retired:
            retired.append(1)
            retire_workspace(services, workspace.slug)

    with pytest.raises(WorkspaceRetired):
        rebuild(services, workspace.slug, retire_once)

    assert rows(services, workspace.slug, GENERATIONS) == [(1, "serving"), (2, "building")]


def test_an_embedder_that_breaks_off_leaves_what_was_done_for_the_next_one(
    workspace: Workspace, services: Services, scripted: tuple[ScriptedOllama, Services]
) -> None:
    slug = workspace.slug
    server, other = scripted
    promote(services, slug, [ABLATION])
    index(services, slug)
    server.fault = lambda _: (500, {"error": "boom"})
    with pytest.raises(EmbedderUnavailable):
        rebuild(other, slug)
    assert found(ask(services, slug, "ablazione")) == ["mem-0001"]
    server.fault = lambda _: None
    report = rebuild(other, slug)
    assert (report.resumed, report.cards) == (True, 1)


def test_a_workspace_that_was_never_indexed_is_built_and_a_lost_collection_too(
    services: Services, workspace: Workspace
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION])
    first = rebuild(services, slug)
    assert (first.cards, first.replaced, first.drain.settled) == (2, None, True)
    services.index.drop(first.collection)
    with pytest.raises(CollectionMissing):
        ask(services, slug, "ablazione")
    assert rebuild(services, slug).cards == 2
    assert found(ask(services, slug, "ablazione"))[0] == "mem-0001"


def test_a_card_that_was_parked_and_is_in_the_new_index_waits_no_more(
    workspace: Workspace, services: Services, scripted: tuple[ScriptedOllama, Services]
) -> None:
    slug = workspace.slug
    server, other = scripted
    server.fault = lambda texts: (200, {"model": "tiny", "embeddings": [[0.0] * DIMENSIONS for _ in texts]})
    promote(services, slug, [ABLATION])
    for _ in range(propagations.MAX_ATTEMPTS):
        report = drain(other, slug, hurry=True)
    assert report.parked == 1

    rebuilt = rebuild(services, slug)

    assert (rebuilt.cards, rebuilt.drain.settled) == (1, True)
