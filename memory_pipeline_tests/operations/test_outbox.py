"""What waits is shown and tried again; what was removed is looked at until nothing can bring it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import Rollback

from memory_pipeline.core.errors import BadInput, UnknownCard
from memory_pipeline.core.projection import point_id, project
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedding.lexical import SparseVector
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.operations.index import index
from memory_pipeline.operations.outbox import outbox, retry
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations, propagations, upkeep
from memory_pipeline.store.database import Role, Transaction
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
from memory_pipeline_tests.index.samples import serve as serve_qdrant
from memory_pipeline_tests.operations.sessions import OUTBOX, change, rows


@pytest.fixture
def scripted(services: Services) -> Iterator[tuple[ScriptedOllama, Services]]:
    """The stack with an embedder that misbehaves as told."""
    with serve() as server, with_settings(services, ollama_url=server.url, embedding_model="tiny") as changed:
        yield server, changed


def _zero_for(word: str, server: ScriptedOllama) -> None:
    server.fault = lambda texts: (
        200,
        {"model": "tiny", "embeddings": [[0.0 if word in text else 1.0] * DIMENSIONS for text in texts]},
    )


def _written_late(services: Services, workspace: str, card: str) -> None:
    """A request of an earlier writer arrives now: the point as the card's present row would have it."""
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        generation = generations.serving(tx, workspace)
        assert generation is not None
        record = cards.get_many(tx, workspace, [card])[card]
    vector = services.embedder.embed_query("universal-sentence-encoder", "tardi", dimensions=512)
    late = IndexPoint(project(record, generation.format), vector, SparseVector((1,), (1.0,)))
    services.index.upsert(generation.collection, [late])
    assert services.index.count(generation.collection) == 2


# --- shown and tried again ----------------------------------------------------------------------------------------


def test_what_waits_is_shown_and_parked_rows_are_tried_again_when_asked_for(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services]
) -> None:
    slug = workspace.slug
    server, services = scripted
    _zero_for("riammissione", server)
    promote(services, slug, [ABLATION, READMISSION, MORTALITY])
    for _ in range(propagations.MAX_ATTEMPTS):
        drain(services, slug, hurry=True)
    promote(services, slug, [{"subject": "degenza", "detail": "giorni di ricovero"}], session="s2")

    told = outbox(services, slug)

    assert (told.pending, told.parked) == (1, 1)
    parked, waiting = told.rows
    assert (parked.card_id, parked.state, parked.revision) == ("mem-0002", "parked", 1)
    assert (parked.attempts, parked.next_attempt_at) == (propagations.MAX_ATTEMPTS, None)
    assert (parked.last_error or "").startswith("UselessVector: ")
    assert (waiting.card_id, waiting.state, waiting.attempts, waiting.last_error) == ("mem-0004", "pending", 0, None)
    assert waiting.next_attempt_at is not None
    assert outbox(services, slug, limit=1).rows == (parked,)

    assert (one := retry(services, slug, "mem-0001")).retried == 0
    assert one.drain.upserted == 1, "a retry drains what is due besides"
    again = retry(services, slug, "mem-0002")
    assert (again.retried, again.drain.pending, again.drain.parked) == (1, 1, 0), "with all its attempts before it"
    server.fault = lambda _: None
    healed = retry(services, slug)
    assert (healed.retried, healed.drain.upserted, healed.drain.settled) == (1, 1, True)
    assert outbox(services, slug).rows == ()


def test_a_batch_costs_its_own_rows_whatever_waits_behind_it(services: Services, workspace: Workspace) -> None:
    promote(services, workspace.slug, [ABLATION])
    with services.database.transaction(Role.OWNER, workspace.slug) as tx:
        tx.execute(
            """
            INSERT INTO propagations (workspace, card_id, revision)
            SELECT %s, 'mem-0001', 1 FROM generate_series(1, 3000)
            """,
            (workspace.slug,),
        )
        tx.execute("ANALYZE propagations")  # which autovacuum does where so many rows came
        before = _read(tx)
        (due,) = propagations.waiting(tx, workspace.slug, limit=10)
        cost = _read(tx) - before
        ids = tx.execute(
            "SELECT propagation_id FROM propagations WHERE state = 'pending' ORDER BY 1 LIMIT 10"
        ).fetchall()
        raise Rollback
    assert cost <= 20
    assert due.upto == ids[-1]["propagation_id"]


def _read(tx: Transaction) -> int:
    """Rows of the outbox read in this transaction so far."""
    row = tx.execute(
        """
        SELECT seq_tup_read + idx_tup_fetch AS rows FROM pg_stat_xact_user_tables
        WHERE relid = 'memory.propagations'::regclass
        """
    ).fetchone()
    assert row is not None
    return int(row["rows"])


def test_what_cannot_be_shown_or_tried_is_named(services: Services, workspace: Workspace) -> None:
    with pytest.raises(BadInput):
        outbox(services, workspace.slug, limit=0)
    with pytest.raises(UnknownCard):
        retry(services, workspace.slug, "mem-0099")
    assert retry(services, workspace.slug).retried == 0


def test_index_tries_a_parked_card_again_and_queues_no_second_row_for_it(
    workspace: Workspace, scripted: tuple[ScriptedOllama, Services]
) -> None:
    slug = workspace.slug
    server, services = scripted
    promote(services, slug, [ABLATION])
    index(services, slug)
    _zero_for("cambiata", server)
    revise(services, slug, "mem-0001", detail="cambiata")
    for _ in range(propagations.MAX_ATTEMPTS):
        drain(services, slug, hurry=True)
    assert rows(services, slug, OUTBOX) == [("mem-0001", 1, "done"), ("mem-0001", 2, "dead")]

    report = index(services, slug)

    assert (report.queued, report.drain.pending, report.drain.parked) == (1, 1, 0)
    assert rows(services, slug, OUTBOX) == [("mem-0001", 1, "done"), ("mem-0001", 2, "pending")]
    server.fault = lambda _: None
    assert index(services, slug).drain.settled
    assert rows(services, slug, OUTBOX) == [("mem-0001", 1, "done"), ("mem-0001", 2, "done")]


@pytest.mark.parametrize("server", ["qdrant_url", "ollama_url"])
def test_an_outage_however_long_parks_nothing(services: Services, workspace: Workspace, server: str) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    index(services, slug)
    promote(services, slug, [READMISSION], session="s2")
    with services.database.transaction(Role.INDEXER, slug) as tx:
        waiting = propagations.waiting(tx, slug, limit=1)
        for _ in range(propagations.MAX_ATTEMPTS - 1):
            propagations.postpone(tx, slug, waiting[0], "UselessVector: of its own")
        for _ in range(30):
            propagations.postpone(tx, slug, waiting[0], "EmbedderUnavailable: down", outage=True)
    with with_settings(services, **{server: f"http://127.0.0.1:{closed_port()}"}) as broken:
        drain(broken, slug, hurry=True)

    (row,) = outbox(services, slug).rows
    assert (row.state, row.attempts < propagations.MAX_ATTEMPTS) == ("pending", True)
    ((seconds,),) = rows(
        services, slug, "SELECT extract(epoch FROM next_attempt_at - now()) FROM propagations WHERE state = 'pending'"
    )
    assert seconds <= 1.5 * propagations.LONGEST_OUTAGE_DELAY_SECONDS
    assert drain(services, slug, hurry=True).settled


def test_a_point_that_the_server_refuses_is_found_among_others_and_waits_alone(
    services: Services, workspace: Workspace
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION, MORTALITY])
    index(services, slug)
    for card in ("mem-0001", "mem-0002", "mem-0003"):
        revise(services, slug, card, detail=f"cambiata {card}")
    # A stored vector of another length, such as a damaged table may hold.
    with services.database.transaction(Role.INDEXER, slug) as tx:
        generation = generations.serving(tx, slug)
        assert generation is not None
        bad = project(cards.get_many(tx, slug, ["mem-0002"])["mem-0002"], generation.format)
        tx.execute(
            "INSERT INTO dense_embeddings (workspace, model_digest, text_sha256, dimensions, vector, pooled)"
            " VALUES (%s, %s, %s, 2, '\\x0000803f0000803f', false)",
            (slug, generation.format.model_digest, bad.dense_sha256),
        )

    report = drain(services, slug)

    assert (report.upserted, report.pending, report.problem) == (2, 1, None)
    assert [(card.card_id, card.error) for card in report.failed] == [("mem-0002", "IndexRefused")]


def test_a_server_that_refuses_everything_is_not_asked_for_ever(services: Services, workspace: Workspace) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    with (
        serve_qdrant() as server,
        with_settings(services, qdrant_url=server.url) as broken,
    ):
        server.status, server.content = 400, b'{"status": {"error": "Bad request"}}'
        report = drain(broken, slug)
    assert report.problem is not None
    assert (report.problem.error, report.pending) == ("IndexRefused", 1)


# --- removed, and looked at again ---------------------------------------------------------------------------------


def test_a_point_that_comes_back_late_is_removed_again(services: Services, workspace: Workspace) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION])
    index(services, slug)
    collection = f"memory__{slug}__1"
    revise(services, slug, "mem-0001", status="deleted")
    assert drain(services, slug).removed == 1
    _written_late(services, slug, "mem-0001")
    assert found(ask(services, slug, "ablazione")) == ["mem-0002"], "recall drops it at once"

    assert drain(services, slug).settled

    assert services.index.read(collection, [point_id("mem-0001")]) == {}
    drain(services, slug)  # finds nothing, and too early for a last look
    assert rows(services, slug, "SELECT card_id FROM tombstones") == [("mem-0001",)]
    change(services, slug, "UPDATE tombstones SET verify_until = now()")
    _written_late(services, slug, "mem-0001")
    drain(services, slug)
    assert services.index.count(collection) == 1
    assert rows(services, slug, "SELECT card_id FROM tombstones") == [("mem-0001",)], "it came back: one look more"
    assert _due(services, slug) == (1, 0)
    drain(services, slug)
    assert rows(services, slug, "SELECT card_id FROM tombstones") == []
    assert _due(services, slug) is None


def test_a_card_that_is_projected_again_is_no_longer_taken_for_removed(
    services: Services, workspace: Workspace
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    index(services, slug)
    revise(services, slug, "mem-0001", status="retired")
    drain(services, slug)
    revise(services, slug, "mem-0001", status="active")

    assert drain(services, slug).upserted == 1

    assert rows(services, slug, "SELECT card_id FROM tombstones") == []
    drain(services, slug)
    assert found(ask(services, slug, "ablazione")) == ["mem-0001"]


def _due(services: Services, workspace: str) -> tuple[int, int] | None:
    """Removals and collections that are due there, as a sensor is told."""
    with services.database.transaction(Role.READER, None) as tx:
        return next(((due.removals, due.collections) for due in upkeep.due(tx) if due.workspace == workspace), None)
