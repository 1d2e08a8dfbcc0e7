"""The assets of one workspace, materialised on the real stack."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.definitions import defs
from memory_pipeline.defs.checks import QUICK, SCANNED
from memory_pipeline.defs.running import materialize_workspace
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.core.rendering import links, texts, tree
from memory_pipeline_tests.defs.conftest import Materialize, data_version, metadata
from memory_pipeline_tests.flows import ABLATION, MORTALITY, READMISSION, ask, found, line, promote, revise

ASSETS = [
    "session_ledger",
    "effective_ledger",
    "memory_cards",
    "session_memories",
    "dense_embeddings",
    "sparse_embeddings",
    "memory_collection",
]


def _retire(services: Services, workspace: str) -> None:
    with services.database.transaction(Role.OWNER, workspace) as tx:
        tx.execute("UPDATE workspaces SET status = 'retired' WHERE workspace = %s", (workspace,))


def _inbox(services: Services, workspace: str, name: str, content: bytes) -> Path:
    file = services.settings.inbox_path / workspace / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def _numbered(*lines: bytes) -> bytes:
    return b"".join(
        b'{"seq": %d, ' % number + text.removeprefix(b"{") + b"\n" for number, text in enumerate(lines, start=1)
    )


def test_from_an_inbox_to_a_memory_that_is_found(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    opened = line("session_opened", question="Quante ablazioni per anno?")
    _inbox(
        services, workspace.slug, "s1.jsonl", _numbered(opened, line(**ABLATION), line("table_promoted", subject="t"))
    )
    promote(services, workspace.slug, [READMISSION, MORTALITY], session="s2")
    append(services, workspace.slug, "s3", [line(**MORTALITY), line(subject="degenza", detail="giorni")])

    run = materialize(workspace.slug)

    assert [name for name, _ in run.rows[: len(ASSETS)]] == ASSETS
    assert {name for name, _ in run.rows[len(ASSETS) :]} == {
        "session_ledger: ledger_accepted",
        "memory_cards: cards_keep_to_the_gate",
        "memory_cards: promotions_have_cards",
        "memory_cards: sources_still_effective",
        *(f"memory_collection: {name}" for name in {*QUICK, *SCANNED, "embedding_fingerprint"}),
    }
    assert run.checks_passed
    ledger = metadata(instance, "session_ledger")
    assert (ledger["sessions"], ledger["entries"], ledger["entries_read"]) == (3, 7, 3)
    assert (ledger["quarantined"], ledger["files_refused"]) == (0, 0)
    effective = metadata(instance, "effective_ledger")
    assert (effective["rows_effective"], effective["rows_control"], effective["rows_stale"]) == (8, 1, 0)
    assert {"type": "concept_clarified", "rows": 5} in effective["effective_by_type"]
    memories = metadata(instance, "session_memories")
    assert (memories["sessions"], memories["cards"], memories["pending"], memories["sessions_pending"]) == (3, 2, 3, 2)
    assert {row["subject"] for row in memories["to_decide"]} == {"ablazione", "mortalità", "degenza"}
    by_session = {row["session"]: row for row in memories["preview"]}
    assert by_session["s1"]["question"] == "Quante ablazioni per anno?"
    assert (by_session["s2"]["promoted"], by_session["s2"]["cards"]) == (2, "mem-0001, mem-0002")
    assert (memories["promoted"], memories["declined"], memories["hidden"], memories["drift"]) == (2, 0, 0, 0)
    page = texts(memories["summary"])
    assert [text for text in page if text.startswith("Session")] == ["Session s1", "Session s3", "Session s2"]
    assert page[page.index("Session s2") :][1] == "Promoted (2)"
    cards = metadata(instance, "memory_cards")
    assert (cards["cards"], cards["active"]) == (2, 2)
    assert [row["card"] for row in cards["preview"]] == ["mem-0002", "mem-0001"]
    for name in ("dense_embeddings", "sparse_embeddings"):
        made = metadata(instance, name)
        assert (made["cards"], made["computed"], made["reused"], made["failed"]) == (2, 2, 0, 0)
        assert made["preview"][0]["vectors"] == 2
    collection = metadata(instance, "memory_collection")
    assert (collection["points"], collection["upserted"], collection["pending"]) == (2, 2, 0)
    assert {row["subject"] for row in collection["preview"]} == {READMISSION["subject"], MORTALITY["subject"]}
    assert found(ask(services, workspace.slug, "riammissioni entro 30 giorni"))[0] == "mem-0001"


def test_a_repetition_does_nothing_and_says_so(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    materialize(workspace.slug)
    versions = {asset: data_version(instance, asset) for asset in ASSETS}

    materialize(workspace.slug)

    assert {asset: data_version(instance, asset) for asset in ASSETS} == versions
    for asset in ("session_ledger", "dense_embeddings", "sparse_embeddings", "memory_collection"):
        assert metadata(instance, asset)["status"] == "nothing to do"
    assert metadata(instance, "dense_embeddings")["reused"] == 2


def test_a_changed_card_changes_the_versions_that_depend_on_it(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    materialize(workspace.slug)
    before = {asset: data_version(instance, asset) for asset in ASSETS}

    revise(services, workspace.slug, "mem-0001", detail="procedura di ablazione con radiofrequenza")
    materialize(workspace.slug)

    changed = {asset for asset in ASSETS if data_version(instance, asset) != before[asset]}
    assert changed == {"memory_cards", "dense_embeddings", "sparse_embeddings", "memory_collection"}
    dense = metadata(instance, "dense_embeddings")
    assert (dense["status"], dense["computed"], dense["reused"]) == ("done", 1, 1)


def test_a_new_line_changes_the_versions_of_what_it_touches(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    promote(services, workspace.slug, [ABLATION])
    materialize(workspace.slug)
    before = {asset: data_version(instance, asset) for asset in ASSETS}

    append(services, workspace.slug, "s1", [line("table_excluded", subject="fact_log")])
    materialize(workspace.slug)

    changed = {asset for asset in ASSETS if data_version(instance, asset) != before[asset]}
    assert changed == {"session_ledger", "effective_ledger"}


def test_an_empty_workspace_is_indexed_too(
    workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    run = materialize(workspace.slug)

    assert run.checks_passed
    for asset in ASSETS:
        told = metadata(instance, asset)
        assert told["status"] == "nothing to do"
        assert told["preview"] == []
    assert metadata(instance, "memory_collection")["points"] == 0


def test_of_a_retired_workspace_nothing_is_derived(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    promote(services, workspace.slug, [ABLATION])
    _inbox(services, workspace.slug, "s2.jsonl", _numbered(line(**READMISSION)))
    _retire(services, workspace.slug)

    run = materialize(workspace.slug)

    assert run.checks_passed
    assert {metadata(instance, asset)["status"] for asset in ASSETS} == {"retired"}
    with services.database.transaction(Role.INDEXER, workspace.slug) as tx:
        assert tx.execute("SELECT FROM generations").fetchall() == []
        assert tx.execute("SELECT FROM sessions WHERE session_id = 's2'").fetchall() == []


def test_bad_lines_and_refused_files_are_shown_and_stop_nothing(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    good, bad = _numbered(line(**ABLATION)), b'{"seq": 2, <script>alert(1)</script>\n'
    _inbox(services, workspace.slug, "good.jsonl", good + bad)
    _inbox(services, workspace.slug, "no session.jsonl", good)
    tampered = _inbox(services, workspace.slug, "tampered.jsonl", good)
    materialize(workspace.slug)
    tampered.write_bytes(good.replace(b"ablazione", b"ablaziona"))

    materialize(workspace.slug)

    told = metadata(instance, "session_ledger")
    assert (told["sessions"], told["quarantined"], told["lines_quarantined"], told["files_refused"]) == (2, 1, 0, 2)
    assert [(row["file"], row["line"], row["reason"]) for row in told["quarantine"]] == [
        (f"{workspace.slug}/good.jsonl", 2, "not_json")
    ]
    assert {(row["file"], row["error"]) for row in told["problems"]} == {
        ("no session.jsonl", "BadInput"),
        ("tampered.jsonl", "LedgerTampered"),
    }


def test_what_a_ledger_says_cannot_act_in_the_ui(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    hostile = (
        "<img src=x onerror=alert(1)> [click](javascript:alert(1)) ![b](https://evil.example/b) | www.evil.example\n\n"
        "# heading \u202etxt.exe \x1b[31m"
    )
    _inbox(services, workspace.slug, "s1.jsonl", _numbered(line("session_opened", question=hostile)))
    promote(services, workspace.slug, [{"subject": hostile, "detail": hostile, "concepts": [hostile]}], session="s2")
    append(services, workspace.slug, "s3", [line(subject=f"{hostile} again", detail=hostile)])

    materialize(workspace.slug)

    shown, pages = [], []
    for asset in ASSETS:
        event = instance.get_latest_materialization_event(dg.AssetKey(asset))
        assert event is not None
        assert event.asset_materialization is not None
        for value in event.asset_materialization.metadata.values():
            assert isinstance(
                value,
                dg.TextMetadataValue
                | dg.IntMetadataValue
                | dg.FloatMetadataValue
                | dg.TableMetadataValue
                | dg.MarkdownMetadataValue,
            )
            if isinstance(value, dg.MarkdownMetadataValue):
                pages.append(value.value or "")
            elif isinstance(value, dg.TableMetadataValue):
                shown += [cell for row in value.records for cell in row.data.values() if isinstance(cell, str)]
            elif isinstance(value, dg.TextMetadataValue):
                assert "<img" not in str(value.value)
    assert any("<img" in cell for cell in shown)
    assert all(cell.isprintable() for cell in shown)
    (page,) = pages
    assert set(tree(page)) <= {"heading", "blockquote", "paragraph", "bullet_list", "list_item", "strong"}
    assert links(page) == []
    assert sum("<img src=x onerror=alert(1)> [click](javascript:alert(1))" in text for text in texts(page)) >= 5


def test_one_workspace_never_shows_in_another(
    services: Services, make_workspace: MakeWorkspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    full, empty = make_workspace(), make_workspace()
    promote(services, full.slug, [ABLATION, READMISSION])
    materialize(full.slug)

    run = materialize(empty.slug)

    assert run.checks_passed
    assert [metadata(instance, asset)["preview"] for asset in ASSETS] == [[]] * len(ASSETS)
    assert set(instance.get_dynamic_partitions("workspace")) == {full.slug, empty.slug}


def test_the_definitions_find_the_stack_in_the_environment(
    services: Services,
    settings: Settings,
    workspace: Workspace,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMORY_STATE", str(settings.state))
    promote(services, workspace.slug, [ABLATION])
    told: list[str] = []

    run = materialize_workspace(defs, instance, workspace.slug, progress=told.append)

    assert run.checks_passed
    assert told == ASSETS
    assert found(ask(services, workspace.slug, "ablazione")) == ["mem-0001"]
