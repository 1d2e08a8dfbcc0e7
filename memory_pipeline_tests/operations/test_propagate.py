"""The index follows the registry, whatever fails on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psycopg
import pytest

from memory_pipeline.core.errors import IncompatibleCollection, ModelMissing
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import point_id, project
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index import vector_index
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.operations import propagate
from memory_pipeline.operations.index import index
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations, propagations
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.embedding.scripted_ollama import ScriptedOllama, serve
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


@pytest.fixture
def scripted(services: Services) -> Iterator[tuple[ScriptedOllama, Services]]:
    """The stack with an embedder that misbehaves as told."""
    with serve() as server, with_settings(services, ollama_url=server.url, embedding_model="tiny") as changed:
        yield server, changed


def _collection(services: Services, workspace: str) -> str:
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        row = tx.execute("SELECT collection FROM generations WHERE state IN ('serving', 'building')").fetchone()
    assert row is not None
    return str(row["collection"])


def _backlog(services: Services, workspace: str) -> tuple[int, int]:
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        return propagations.count(tx, workspace)


def test_a_promoted_memory_is_found_once_drained(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])

    report = drain(services, workspace.slug)

    assert (report.upserted, report.embedded, report.settled) == (2, 2, True)
    assert found(ask(services, workspace.slug, "Quante ablazioni nel 2023?"))[0] == "mem-0001"


def test_a_second_index_asks_nothing_and_writes_nothing(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services]
) -> None:
    server, services = scripted
    promote(services, workspace.slug, [ABLATION, READMISSION])
    first = index(services, workspace.slug)
    asked = len(server.batches)

    second = index(services, workspace.slug)

    assert (first.drain.upserted, first.drain.embedded) == (2, 2)
    assert (second.queued, second.drain.upserted, second.drain.payload_only, second.drain.embedded) == (0, 0, 0, 0)
    assert len(server.batches) == asked


def test_an_edit_replaces_the_old_text_in_the_index(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    drain(services, workspace.slug)

    revise(services, workspace.slug, "mem-0001", subject="dialisi", detail="seduta di emodialisi ambulatoriale")
    report = drain(services, workspace.slug)

    assert report.upserted == 1
    answer = ask(services, workspace.slug, "sedute di emodialisi")
    assert found(answer)[0] == "mem-0001"
    assert answer.proposals[0].card.subject == "dialisi"
    assert ask(services, workspace.slug, "ablazione transcatetere").proposals[0].scores.bm25 == 0


def test_a_drain_whose_time_is_up_serves_what_it_has_filled(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])

    report = drain(services, workspace.slug, longest=0)

    assert report.settled
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]


def test_two_edits_in_a_row_both_reach_the_index(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    drain(services, workspace.slug)

    for detail in ("prima versione del testo", "seconda versione del testo"):
        revise(services, workspace.slug, "mem-0001", detail=detail)
        assert drain(services, workspace.slug).upserted == 1

    answer = ask(services, workspace.slug, "seconda versione")
    assert (answer.proposals[0].card.detail, answer.proposals[0].card.revision) == ("seconda versione del testo", 3)


def test_a_revision_with_unchanged_texts_costs_one_payload_write(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services]
) -> None:
    server, services = scripted
    promote(services, workspace.slug, [ABLATION])
    drain(services, workspace.slug)
    asked = len(server.batches)

    revise(services, workspace.slug, "mem-0001", scope=["budget"])
    report = drain(services, workspace.slug)

    assert (report.payload_only, report.upserted, report.embedded) == (1, 0, 0)
    assert len(server.batches) == asked
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]


def test_unchanged_texts_whose_point_was_lost_are_upserted_whole(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    drain(services, workspace.slug)
    services.index.delete(_collection(services, workspace.slug), [point_id("mem-0001")])

    revise(services, workspace.slug, "mem-0001", scope=["budget"])
    report = drain(services, workspace.slug)

    assert (report.payload_only, report.upserted) == (0, 1)
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]


def test_a_deleted_card_is_gone_by_id_and_at_once_from_recall(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    drain(services, workspace.slug)
    collection = _collection(services, workspace.slug)

    revise(services, workspace.slug, "mem-0001", status="deleted")
    before = ask(services, workspace.slug, "ablazione")
    report = drain(services, workspace.slug)

    assert found(before) == ["mem-0002"]
    assert before.excluded == {"not_active": 1}
    assert report.removed == 1
    assert services.index.read(collection, [point_id("mem-0001")]) == {}
    assert services.index.count(collection) == 1


def test_fifty_made_and_deleted_leave_no_orphan(services: Services, workspace: Workspace) -> None:
    concepts = [{"subject": f"concetto {number}", "detail": f"definizione numero {number}"} for number in range(50)]
    decision = promote(services, workspace.slug, concepts)
    drain(services, workspace.slug)
    collection = _collection(services, workspace.slug)
    assert services.index.count(collection) == 50

    for verdict in decision.verdicts:
        assert verdict.card_id is not None
        revise(services, workspace.slug, verdict.card_id, status="deleted")
    report = drain(services, workspace.slug)

    assert (report.removed, services.index.count(collection)) == (50, 0)


def test_an_embedder_that_is_down_leaves_the_promotion_pending_and_the_next_drain_heals(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION])
    drain(services, workspace.slug)
    promote(services, workspace.slug, [READMISSION], session="s2")
    with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as broken:
        report = drain(broken, workspace.slug)

    assert report.problem is not None
    assert (report.problem.error, report.problem.exit_code) == ("EmbedderUnavailable", 32)
    assert (report.pending, [card.card_id for card in report.failed]) == (1, ["mem-0002"])

    healed = drain(services, workspace.slug, hurry=True)

    assert (healed.upserted, healed.settled) == (1, True)
    assert services.index.count(_collection(services, workspace.slug)) == 2


def test_a_qdrant_that_is_down_leaves_the_promotion_pending_and_the_next_drain_heals(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION])
    with with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as broken:
        report = drain(broken, workspace.slug)

    assert report.problem is not None
    assert (report.problem.error, report.pending) == ("IndexUnavailable", 1)

    assert drain(services, workspace.slug, hurry=True).settled
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]


def test_a_poison_card_waits_with_its_error_and_blocks_no_other(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services]
) -> None:
    server, services = scripted

    def nan_for_readmission(texts: list[str]) -> tuple[int, object] | None:
        if not any("riammissione" in text for text in texts):
            return None
        vectors = [[float("nan")] * 8 if "riammissione" in text else [1.0] * 8 for text in texts]
        return 200, {"model": "tiny", "embeddings": vectors}

    server.fault = nan_for_readmission
    promote(services, workspace.slug, [ABLATION, READMISSION, MORTALITY])

    report = drain(services, workspace.slug)

    assert (report.upserted, report.pending) == (2, 1)
    assert [(card.card_id, card.error) for card in report.failed] == [("mem-0002", "UselessVector")]
    with services.database.transaction(Role.INDEXER, workspace.slug) as tx:
        row = tx.execute("SELECT attempts, last_error FROM propagations WHERE state = 'pending'").fetchone()
    assert row is not None
    assert row["attempts"] == 1
    assert row["last_error"].startswith("UselessVector: ")


def test_a_poison_card_is_parked_after_its_last_try(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services]
) -> None:
    server, services = scripted
    server.fault = lambda texts: (200, {"model": "tiny", "embeddings": [[0.0] * 8 for _ in texts]})
    promote(services, workspace.slug, [ABLATION])

    for _ in range(propagations.MAX_ATTEMPTS):
        report = drain(services, workspace.slug, hurry=True)

    assert (report.pending, report.parked) == (0, 1)
    assert drain(services, workspace.slug, hurry=True).failed == (), "a parked row is not tried again"


def test_a_change_during_the_drain_goes_on_waiting(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    with services.database.transaction(Role.INDEXER, workspace.slug) as tx:
        seen = propagations.waiting(tx, workspace.slug, limit=10)
    revise(services, workspace.slug, "mem-0001", detail="cambiata nel frattempo")
    with services.database.transaction(Role.INDEXER, workspace.slug) as tx:
        propagations.settle(tx, workspace.slug, seen)

    assert _backlog(services, workspace.slug) == (1, 0)


def test_one_writer_per_workspace(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    with services.database.transaction(Role.INDEXER, workspace.slug) as other:
        assert propagations.try_lock_drain(other, workspace.slug)
        report = drain(services, workspace.slug, wait=0.05)

    assert (report.busy, report.pending, report.upserted) == (True, 1, 0)
    assert drain(services, workspace.slug).settled


def test_many_drains_at_once_write_each_card_once(services: Services, workspace: Workspace) -> None:
    concepts = [{"subject": f"concetto {number}", "detail": f"definizione {number}"} for number in range(20)]
    promote(services, workspace.slug, concepts)
    start = threading.Barrier(4)

    def run(_: int) -> int:
        start.wait()
        return drain(services, workspace.slug, wait=30).upserted

    with ThreadPoolExecutor(4) as pool:
        written = list(pool.map(run, range(4)))

    assert sum(written) == 20
    assert services.index.count(_collection(services, workspace.slug)) == 20


def test_points_deleted_behind_its_back_are_restored_by_index_after_the_registry_forgets_them(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    drain(services, workspace.slug)
    collection = _collection(services, workspace.slug)
    services.index.drop(collection)

    report = index(services, workspace.slug)

    assert (report.cards, report.drain.upserted, report.drain.embedded) == (2, 2, 0)
    assert services.index.count(collection) == 2


def test_a_collection_of_somebody_else_under_our_name_is_never_touched(
    services: Services, workspace: Workspace
) -> None:
    taken = f"memory__{workspace.slug}__1"
    services.index.create(taken, dimensions=3)
    try:
        promote(services, workspace.slug, [ABLATION])
        report = index(services, workspace.slug)

        assert report.collection == f"memory__{workspace.slug}__2"
        shape = services.index.shape(taken)
        assert shape is not None
        assert shape.differences(3) == ()
        assert services.index.count(taken) == 0
    finally:
        services.index.drop(taken)


def test_a_collection_with_other_vectors_is_refused_and_left_as_it_is(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    drain(services, workspace.slug)
    collection = _collection(services, workspace.slug)
    services.index.drop(collection)
    services.index.create(collection, dimensions=3)

    with pytest.raises(IncompatibleCollection, match=collection):
        index(services, workspace.slug)

    shape = services.index.shape(collection)
    assert shape is not None
    assert shape.differences(3) == ()


def test_a_missing_model_is_one_clear_error_and_leaves_the_registry_intact(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION])
    with (
        with_settings(services, embedding_model="no-such-model") as broken,
        pytest.raises(ModelMissing, match="no-such"),
    ):
        index(broken, workspace.slug)

    assert _backlog(services, workspace.slug) == (1, 0)


def test_another_model_in_the_settings_makes_a_rebuild_due_and_keeps_what_serves(
    workspace: Workspace, services: Services, scripted: tuple[ScriptedOllama, Services]
) -> None:
    promote(services, workspace.slug, [ABLATION])
    index(services, workspace.slug)

    _, other = scripted
    report = index(other, workspace.slug)

    assert any(difference.startswith("model: ") for difference in report.rebuild_due)
    with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as down:
        unknown = index(down, workspace.slug)
    assert (unknown.rebuild_due, "no connection" in unknown.rebuild_unknown) == ((), True)
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]


def test_equal_text_in_two_workspaces_is_two_cards_with_two_vectors(
    make_workspace: MakeWorkspace, services: Services
) -> None:
    first, second = make_workspace(), make_workspace()
    for workspace in (first, second):
        promote(services, workspace.slug, [ABLATION])
        drain(services, workspace.slug)

    revise(services, first.slug, "mem-0001", status="deleted")
    drain(services, first.slug)

    assert found(ask(services, first.slug, "ablazione")) == []
    assert found(ask(services, second.slug, "ablazione")) == ["mem-0001"]


def test_points_lost_or_changed_behind_its_back_are_found_and_mended_by_index(
    services: Services, workspace: Workspace
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION, MORTALITY])
    index(services, workspace.slug)
    collection = _collection(services, workspace.slug)
    with services.database.transaction(Role.INDEXER, workspace.slug) as tx:
        card = cards.get_many(tx, workspace.slug, ["mem-0002"])["mem-0002"]
        generation = generations.serving(tx, workspace.slug)
    assert generation is not None
    other = project(card.model_copy(update={"scope": ("altro",)}), generation.format)
    vector = np.full(generation.format.dimensions, 0.5, dtype=np.float32)
    before = {proposal.card.id: proposal.scores for proposal in ask(services, workspace.slug, "riammissione").proposals}
    services.index.delete(collection, [point_id("mem-0001")])
    services.index.upsert(
        collection,
        [IndexPoint(other, vector, encoder_of("it", profile_named(generation.format.profile)).document("altro"))],
    )

    report = index(services, workspace.slug)

    assert (report.queued, report.drain.settled) == (2, True)
    assert services.index.count(collection) == 3
    assert set(found(ask(services, workspace.slug, "ablazione, riammissione, mortalità"))) == {
        "mem-0001",
        "mem-0002",
        "mem-0003",
    }
    after = {proposal.card.id: proposal.scores for proposal in ask(services, workspace.slug, "riammissione").proposals}
    assert after["mem-0002"].dense == pytest.approx(before["mem-0002"].dense), "its vector is its own again"
    assert index(services, workspace.slug).queued == 0


def test_a_success_that_wrote_nothing_is_not_taken_for_done(services: Services, workspace: Workspace) -> None:
    """The server answers a fenced write as any other: here the point is there at a revision that the card never had."""
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION])
    drain(services, slug)
    with services.database.transaction(Role.INDEXER, slug) as tx:
        card = cards.get_many(tx, slug, ["mem-0001"])["mem-0001"]
        generation = generations.serving(tx, slug)
    assert generation is not None
    ahead = project(card.model_copy(update={"revision": 9}), generation.format)
    services.index.set_payload(generation.collection, [ahead])

    revise(services, slug, "mem-0001", detail="cambiata")
    revise(services, slug, "mem-0002", detail="cambiata anche questa")
    report = drain(services, slug)

    assert [(failed.card_id, failed.error) for failed in report.failed] == [("mem-0001", "NotAcknowledged")]
    assert (report.upserted, report.pending) == (1, 1)
    assert found(ask(services, slug, "cambiata")) == ["mem-0002"], "what is there is not the card's present row"


def test_a_delete_that_was_not_committed_leaves_the_point(services: Services, workspace: Workspace) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    drain(services, slug)
    with services.database.transaction(Role.REVIEWER, slug) as tx:
        tx.execute("UPDATE cards SET status = 'deleted', revision = revision + 1, updated_by = session_user")
        assert drain(services, slug).removed == 0
        raise psycopg.Rollback

    assert drain(services, slug).removed == 0
    assert services.index.count(_collection(services, slug)) == 1
    assert found(ask(services, slug, "ablazione")) == ["mem-0001"]


def test_a_point_too_large_for_any_request_is_named_and_waits_alone(
    services: Services, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    slug = workspace.slug
    concepts = [f"un concetto dal nome lungo, numero {number}" for number in range(300)]
    promote(services, slug, [ABLATION, {**READMISSION, "concepts": concepts}, MORTALITY])
    monkeypatch.setattr(vector_index, "_MAX_REQUEST", 20_000)

    report = drain(services, slug)

    assert (report.upserted, report.pending) == (2, 1)
    assert [(failed.card_id, failed.error) for failed in report.failed] == [("mem-0002", "PointTooLarge")]
    monkeypatch.undo()
    assert drain(services, slug, hurry=True).settled


def test_a_backlog_is_drained_batch_by_batch_and_its_texts_are_embedded_once(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one batch is written the texts of the next one are embedded: still each once, and counted."""
    slug = workspace.slug
    server, services = scripted
    monkeypatch.setattr(propagate, "BATCH", 4)
    same = [{"subject": f"concetto {number}", "detail": "uguale per tutti"} for number in range(10)]
    promote(services, slug, same)
    told: list[int] = []

    first = drain(services, slug, longest=0, progress=told.append)
    assert (first.upserted, first.pending) == (4, 6)
    rest = drain(services, slug, progress=told.append)

    assert (rest.upserted, rest.settled) == (6, True)
    assert told == [4, 4, 2]
    texts = [text for batch in server.batches for text in batch if text != "memory"]
    assert (len(texts), len(set(texts)), first.embedded + rest.embedded) == (10, 10, 10)


def test_a_server_that_fails_while_the_next_texts_are_embedded_is_met_by_their_own_batch(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    slug = workspace.slug
    server, services = scripted
    monkeypatch.setattr(propagate, "BATCH", 2)
    promote(services, slug, [ABLATION, READMISSION, MORTALITY])
    server.fault = lambda texts: None if any("ablazione" in text for text in texts) else (400, {"error": "boom"})

    report = drain(services, slug)

    assert (report.upserted, report.pending) == (2, 1)
    assert report.problem is not None
    server.fault = lambda _: None
    assert drain(services, slug, hurry=True).settled
