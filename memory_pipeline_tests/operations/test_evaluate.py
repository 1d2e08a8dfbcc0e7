"""Evaluation: what is asked, what is counted, and that nothing of it stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import (
    EmbedderUnavailable,
    IndexUnavailable,
    MemoryPipelineError,
    MissingSecret,
    NotScratch,
    UnknownWorkspace,
)
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.harness.sample import golden_corpus
from memory_pipeline.operations.evaluate import Evaluation, Figures, SetFigures, evaluate, leaks
from memory_pipeline.operations.purge import purge_scratch
from memory_pipeline.operations.scratch import purge_leftovers
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import create_workspace, list_workspaces
from memory_pipeline.store import purges, workspaces
from memory_pipeline.store.database import Role
from memory_pipeline_tests.core.builders import card, place
from memory_pipeline_tests.flows import closed_port, with_settings
from memory_pipeline_tests.operations.corpus import write_set
from memory_pipeline_tests.store.scenes import furnished_workspace


@pytest.fixture
def scratch(services: Services) -> Iterator[Callable[[], set[str]]]:
    """Scratch workspaces that came to be since the test began; the test must leave none."""

    def slugs() -> set[str]:
        with services.database.transaction(Role.OWNER, None) as tx:
            return set(workspaces.scratch_slugs(tx))

    before = slugs()
    yield lambda: slugs() - before
    assert slugs() == before


def rows_of(found: Evaluation) -> dict[tuple[str, str], SetFigures]:
    return {(row.protocol, row.language): row for row in found.sets}


def test_the_golden_set_of_the_project_is_found_and_leaves_nothing(
    services: Services, scratch: Callable[[], set[str]]
) -> None:
    seen: list[tuple[int, int]] = []

    rows = rows_of(evaluate(services, golden_corpus(), progress=lambda _, done, total: seen.append((done, total))))

    assert seen[0] == (0, 32)
    assert seen[-1] == (32, 32)
    assert {key: row.queries for key, row in rows.items()} == {
        ("filtered", "en"): 11, ("global", "en"): 11, ("filtered", "it"): 21, ("global", "it"): 21,
    }  # fmt: skip
    for (protocol, language), row in rows.items():
        assert row.name == "golden"
        assert row.scope_leaks == 0
        assert row.fused.recall_at_5 is not None
        assert row.fused.recall_at_5 >= 0.9, (protocol, language)
        assert set(row.latency_ms) >= {"total", "embed", "index"}
        assert all(spent.p50 <= spent.p95 for spent in row.latency_ms.values())
    assert rows["filtered", "it"].closure_recall == 1.0
    assert scratch() == set()


def test_links_bring_the_closure_and_count_for_no_rank(tmp_path: Path, services: Services) -> None:
    """Twenty cards are a little nearer to the question than what its card requires: only links lead there."""
    db = {"database": "db"}
    near = [{**db, "id": f"near {n}", "detail": f"net weight of parcel {n} after packing"} for n in range(20)]
    chain = [
        {**db, "id": "a", "subject": "net margin", "detail": "net margin after all costs", "links": ["b"]},
        {**db, "id": "b", "subject": "overheads", "detail": "rent, heating, insurance", "links": ["c", "b"]},
        {**db, "id": "c", "subject": "square metres", "detail": "how rooms are measured", "links": ["gone"]},
        {**db, "id": "c again", "subject": "Square metres", "detail": "how rooms are  measured."},
    ]
    asked = {**db, "question": "net margin after all costs"}
    write_set(
        tmp_path,
        cards=[*near, *chain],
        queries=[
            {**asked, "id": "the rule", "relevant": ["a"], "required_closure": ["a", "b", "c"]},
            {**asked, "id": "a linked card", "relevant": ["b"]},
            {"id": "nowhere", "question": "square metres of a room", "relevant": ["c again"]},
            {"id": "nobody knows", "question": "?", "relevant": ["gone"]},
        ],
    )

    rows = rows_of(evaluate(services, tmp_path))

    filtered, everywhere = rows["filtered", "en"], rows["global", "en"]
    assert (filtered.queries, everywhere.queries) == (2, 3)
    assert filtered.closure_recall == everywhere.closure_recall == 1.0
    assert (filtered.fused.recall_at_5, filtered.fused.mrr) == (0.5, 0.5)
    assert everywhere.fused.mrr == pytest.approx(2 / 3, abs=0.0001)
    assert filtered.scope_leaks == everywhere.scope_leaks == 0


def test_cards_come_to_exist_between_the_questions(tmp_path: Path, services: Services) -> None:
    """A question is asked only of cards that an earlier one created: by its own words it would find its own card."""
    texts = ["charter schools with free meals", "bank loans that defaulted", "superheroes with blue eyes"]
    write_set(
        tmp_path,
        cards=[
            {"id": f"c{n}", "database": "db", "detail": text, "first_question_id": n} for n, text in enumerate(texts)
        ],
        queries=[
            {"id": "dev:0", "database": "db", "question": texts[0], "relevant": ["c0"]},
            {"id": "dev:2", "database": "db", "question": texts[0], "relevant": ["c0", "c2"]},
            {"id": "dev:1", "database": "db", "question": texts[2], "relevant": ["c2"]},
            {"id": "dev:10", "database": "db", "question": texts[2], "relevant": ["c2", "c0"]},
        ],
    )  # fmt: skip

    (filtered, everywhere) = evaluate(services, tmp_path).sets

    assert (filtered.protocol, filtered.queries, everywhere.queries) == ("filtered", 2, 2)
    # dev:2 knows c0 and c1, of which c0 answers; dev:10 knows all three, of which two do.
    assert filtered.fused.recall_at_1 == pytest.approx((1 + 1 / 2) / 2)
    assert filtered.bm25.mrr == 1.0


def test_only_the_sets_and_the_language_that_are_asked_for(tmp_path: Path, services: Services) -> None:
    write_set(
        tmp_path / "faq",
        passages=[{"id": "p", "title": "messaggi", "text": "i messaggi archiviati restano sul telefono", "lang": "it"}],
        queries=[{"id": "i", "question": "dove sono i messaggi?", "relevant": ["p"]},
                 {"id": "e", "question": "where are my messages?", "relevant": ["p"], "lang": "en"}],
    )  # fmt: skip
    write_set(tmp_path / "mute", cards=[{"id": "c", "detail": "nobody asks for it"}])

    everything = [(row.name, row.language, row.queries) for row in evaluate(services, tmp_path).sets]
    assert everything == [("faq", "en", 1), ("faq", "it", 1), ("mute", "en", 0)]
    (english,) = evaluate(services, tmp_path, names=("faq",), language="en").sets
    assert (english.queries, english.protocol, english.closure_recall) == (1, "global", None)


def test_a_set_of_which_nothing_is_asked_has_a_row_without_figures(
    tmp_path: Path, services: Services, scratch: Callable[[], set[str]]
) -> None:
    write_set(tmp_path / "mute", cards=[{"id": "c", "detail": "nobody asks for it", "lang": "it"}])
    write_set(
        tmp_path / "strange", cards=[{"id": "c", "detail": "d"}],
        queries=[{"id": "q", "question": "d?", "relevant": ["gone"]}],
    )  # fmt: skip
    seen: list[tuple[str, int, int]] = []

    found = evaluate(services, tmp_path, progress=lambda *told: seen.append(told))

    nothing = Figures(ndcg_at_10=None, recall_at_1=None, recall_at_5=None, mrr=None)
    assert [(row.name, row.protocol, row.language, row.queries) for row in found.sets] == [
        ("mute", "global", "it", 0),
        ("strange", "global", "en", 0),
    ]
    for row in found.sets:
        assert (row.fused, row.dense, row.bm25, row.closure_recall) == (nothing, nothing, nothing, None)
        assert (row.scope_leaks, row.latency_ms) == (0, {})
    (english,) = evaluate(services, tmp_path, names=("mute",), language="en").sets
    assert (english.language, english.queries) == ("en", 0)
    assert seen == [("mute", 0, 0), ("strange", 0, 0)]


@pytest.mark.parametrize(("setting", "error"), [("ollama_url", EmbedderUnavailable), ("qdrant_url", IndexUnavailable)])
def test_a_server_that_is_down_from_the_start_is_named_as_one_that_dies_on_the_way(
    setting: str, error: type[MemoryPipelineError], tmp_path: Path, services: Services, scratch: Callable[[], set[str]]
) -> None:
    write_set(tmp_path, cards=[{"id": "c", "detail": "d"}], queries=[{"id": "q", "question": "d?", "relevant": ["c"]}])

    with with_settings(services, **{setting: f"http://127.0.0.1:{closed_port()}"}) as down, pytest.raises(error):
        evaluate(down, tmp_path)

    purge_leftovers(services)  # without its index a workspace cannot be purged: the next evaluation does it
    assert scratch() == set()


def test_a_card_is_added_by_the_reviewer_for_the_evaluation_and_seen_by_no_sensor(
    tmp_path: Path, services: Services, scratch: Callable[[], set[str]]
) -> None:
    write_set(tmp_path, cards=[{"id": "c", "detail": "d"}], queries=[{"id": "q", "question": "d?", "relevant": ["c"]}])
    looked: dict[str, Any] = {}

    def look(_: str, done: int, total: int) -> None:
        if (done, total) != (1, 1):
            return
        (slug,) = looked["slugs"] = scratch()
        assert slug.startswith("eval-")
        with services.database.transaction(Role.REVIEWER, slug) as tx:
            looked["sources"] = tx.execute("SELECT provenance, via, decided_by FROM card_sources").fetchall()
            tx.execute("INSERT INTO propagations (workspace, card_id, revision) VALUES (%s, 'mem-0001', 1)", (slug,))
        with services.database.transaction(Role.INDEXER, None) as tx:
            looked["monitors"] = {
                row["workspace"]
                for name in ("monitor_pending", "monitor_active_cards")
                for row in tx.execute(sql.SQL("SELECT workspace FROM {}()").format(sql.Identifier(name)))
            }
        looked["listed"] = {state.slug for state in list_workspaces(services)}
        assert purge_leftovers(services) == []  # it is alive

    evaluate(services, tmp_path, progress=look)

    assert [tuple(row.values()) for row in looked["sources"]] == [("curation", "evaluation", "memory_reviewer")]
    assert not looked["slugs"] & (looked["monitors"] | looked["listed"])


_KILLED = """
import os, signal, sys
from pathlib import Path
from memory_pipeline.operations.evaluate import evaluate
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
def kill(_, done, total):
    if done == total:
        os.kill(os.getpid(), signal.SIGKILL)
evaluate(Services(Settings()), Path(sys.argv[1]), progress=kill)
"""


def test_what_a_killed_evaluation_left_is_purged_by_the_next_one(
    tmp_path: Path, services: Services, environment: dict[str, str], scratch: Callable[[], set[str]]
) -> None:
    write_set(tmp_path, cards=[{"id": "c", "detail": "d"}], queries=[{"id": "q", "question": "d?", "relevant": ["c"]}])

    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], env=environment, check=False, timeout=120)

    assert killed.returncode == -9
    (left,) = scratch()
    with services.database.transaction(Role.OWNER, left) as tx:
        (collection,) = purges.collections(tx, left)
    assert services.index.count(collection) == 1
    assert services.index.alias_target(f"memory__{left}") == collection
    assert evaluate(services, tmp_path).sets
    assert scratch() == set()
    assert services.index.shape(collection) is None
    assert services.index.alias_target(f"memory__{left}") is None


@pytest.mark.parametrize("role", ["memory_owner", "memory_reviewer", "memory_indexer", "memory_reader"])
def test_a_missing_secret_is_refused_by_name_before_anything_is_made(
    role: str, tmp_path: Path, services: Services, scratch: Callable[[], set[str]]
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for file in services.settings.secrets.iterdir():
        if file.name != role:
            (secrets / file.name).write_bytes(file.read_bytes())

    begun: list[str] = []
    with with_settings(services, secrets_dir=secrets) as poor, pytest.raises(MissingSecret, match=role):
        evaluate(poor, golden_corpus(), progress=lambda name, *_: begun.append(name))
    assert begun == []


def holding(services: Services, slug: str) -> list[str]:
    """Tables of the schema in which any row names a workspace, whatever the column."""
    with services.database.transaction(Role.OWNER, slug) as tx:
        tables = tx.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'memory'::regnamespace AND relkind IN ('r', 'p')"
        ).fetchall()
        return sorted(
            row["relname"]
            for row in tables
            if tx.execute(
                sql.SQL("SELECT FROM {} AS t WHERE to_jsonb(t)::text LIKE %s").format(sql.Identifier(row["relname"])),
                (f"%{slug}%",),
            ).rowcount
        )


def test_a_purge_leaves_its_own_trace_and_nothing_else_though_every_table_had_rows(services: Services) -> None:
    with furnished_workspace(services) as slug:
        with services.database.transaction(Role.OWNER, slug) as tx:
            tx.execute("UPDATE workspaces SET scratch = true WHERE workspace = %s", (slug,))
            tables = set(purges.tables(tx))
        full = set(holding(services, slug))

        purged = purge_scratch(services, slug, "for a test")

    assert full == tables
    assert purged.rows >= len(tables)
    assert holding(services, slug) == ["purges"]
    with services.database.transaction(Role.OWNER, slug) as tx:
        (trace,) = tx.execute("SELECT reason, purged_by, finished_at FROM purges").fetchall()
    assert (trace["reason"], trace["purged_by"]) == ("for a test", "memory_owner")
    assert trace["finished_at"] is not None


def test_only_what_was_made_for_an_evaluation_is_purged(services: Services, workspace: Workspace) -> None:
    before = holding(services, workspace.slug)
    with pytest.raises(NotScratch, match=workspace.slug):
        purge_scratch(services, workspace.slug, "by mistake")
    with pytest.raises(UnknownWorkspace):
        purge_scratch(services, "eval-never-made", "by mistake")

    assert holding(services, workspace.slug) == before
    assert "workspaces" in before


def test_every_table_of_a_workspace_is_purged_after_those_that_refer_to_it(services: Services) -> None:
    with services.database.transaction(Role.OWNER, None) as tx:
        order = purges.tables(tx)
        foreign = tx.execute(
            """
            SELECT conrelid::regclass::text AS child, confrelid::regclass::text AS parent FROM pg_constraint
            WHERE contype = 'f' AND connamespace = 'memory'::regnamespace AND conrelid <> confrelid
            """
        ).fetchall()

    assert order[-1] == "workspaces"
    assert "purges" not in order
    for key in foreign:
        child, parent = (key[end].removeprefix("memory.") for end in ("child", "parent"))
        if child in order and parent in order:
            assert order.index(child) < order.index(parent)


def test_a_purge_that_broke_off_is_finished_by_the_next_one(services: Services) -> None:
    slug = "eval-broken-off"
    create_workspace(services, Workspace(slug=slug, title="x", language="it", default_database="db"), scratch=True)
    with services.database.transaction(Role.OWNER, slug) as tx:
        purges.begin(tx, slug, "the first try")

    assert purge_leftovers(services) == [slug]
    with services.database.transaction(Role.OWNER, slug) as tx:
        rows = tx.execute("SELECT reason, finished_at IS NOT NULL AS finished FROM purges").fetchall()
    assert [(row["reason"], row["finished"]) for row in rows] == [("the first try", True)]


@pytest.mark.parametrize(
    ("holds", "asked_in", "leaked"),
    [
        ([place("Cardio", table="t")], place("cardio", "public"), False),
        ([place("dwh"), place("cardio")], place("cardio"), False),
        ([], place("cardio"), False),
        ([place("dwh")], None, False),
        ([place("dwh")], place("cardio"), True),
        ([place("dwh"), place("erp", table="cardio")], place("cardio"), True),
    ],
)
def test_a_card_of_other_databases_only_is_a_leak(
    holds: list[Dependency], asked_in: Dependency | None, leaked: bool
) -> None:
    assert leaks(card(dependencies=holds), asked_in) is leaked
