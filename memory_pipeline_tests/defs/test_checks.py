"""Every check fails because of a planted fault, and passes after the repair that its page names."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from memory_pipeline.core.drift import DriftKind
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.definitions import defs
from memory_pipeline.defs.checks import CHECKS, SCANNED, WARNINGS, all_results, lasting, quick_results
from memory_pipeline.operations.decide import decide
from memory_pipeline.operations.inbox import read_inbox
from memory_pipeline.operations.ledger import append, reset_source
from memory_pipeline.operations.outbox import retry
from memory_pipeline.operations.preview import preview
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.rebuild import rebuild
from memory_pipeline.operations.reconcile import reconcile
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import (
    WorkspaceChanges,
    create_workspace,
    restore_workspace,
    retire_workspace,
    set_workspace,
)
from memory_pipeline.store.database import Role
from memory_pipeline_tests.defs.conftest import QUIET
from memory_pipeline_tests.flows import ABLATION, MORTALITY, READMISSION, line, promote, revise
from memory_pipeline_tests.operations.strangers import raw_client
from memory_pipeline_tests.operations.test_consistency import (
    Scene,
    add_an_orphan,
    change_past_the_queue,
    hold_another_text,
    lose,
    lose_the_alias,
    take_for_an_exemplar,
)

Act = Callable[[Scene], None]


@pytest.fixture(scope="module")
def scene(services: Services) -> Iterator[Scene]:
    """A workspace with three memories in its index, for all faults in turn: each repair leaves it well."""
    slug = f"t-{uuid.uuid4().hex[:12]}"
    create_workspace(services, Workspace(slug=slug, title="Test", language="it", default_database="cardio"))
    promote(services, slug, [ABLATION, READMISSION, MORTALITY])
    assert drain(services, slug).settled
    with raw_client(services) as raw:
        made = Scene(services, slug, raw)
        yield made
    services.index.drop(made.collection)


def put_a_bad_line(scene: Scene) -> None:
    folder = scene.services.settings.inbox_path / scene.workspace
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bad.jsonl").write_bytes(b'{"seq": 1, "half a line\n')
    read_inbox(scene.services, scene.workspace)


def give_the_file_up(scene: Scene) -> None:
    file = scene.services.settings.inbox_path / scene.workspace / "bad.jsonl"
    file.write_bytes(b'{"seq": 1, ' + line("table_excluded", subject="t").removeprefix(b"{") + b"\n")
    reset_source(scene.services, scene.workspace, "bad", reason="the line was corrected")
    read_inbox(scene.services, scene.workspace)


def change_long_ago(scene: Scene) -> None:
    revise(
        scene.services,
        scene.workspace,
        "mem-0001",
        detail="un testo di venti minuti fa",
        updated_at=datetime.now(UTC) - timedelta(minutes=20),
    )


def wait_for_long(scene: Scene) -> None:
    revise(scene.services, scene.workspace, "mem-0001", detail="una modifica che aspetta da un'ora")
    scene.sql("UPDATE propagations SET created_at = now() - interval '1 hour' WHERE state = 'pending'", role=Role.OWNER)


def park(scene: Scene) -> None:
    revise(scene.services, scene.workspace, "mem-0001", detail="una modifica che non riesce mai")
    scene.sql("UPDATE propagations SET state = 'dead', last_error = 'planted' WHERE state = 'pending'")


def drain_it(scene: Scene) -> None:
    assert drain(scene.services, scene.workspace, hurry=True).settled


def retry_it(scene: Scene) -> None:
    retry(scene.services, scene.workspace)
    drain_it(scene)


def speak_another_language(scene: Scene) -> None:
    set_workspace(scene.services, scene.workspace, WorkspaceChanges(language="en"))


def rebuild_it(scene: Scene) -> None:
    rebuild(scene.services, scene.workspace)


def reconcile_it(scene: Scene) -> None:
    assert reconcile(scene.services, scene.workspace).complete


def decide_anew(scene: Scene) -> None:
    revise(scene.services, scene.workspace, "mem-0002", detail="deciso da un revisore")
    drain_it(scene)


def roll_back(scene: Scene) -> None:
    promote(scene.services, scene.workspace, [{"subject": "degenza", "detail": "giorni"}], session="s9")
    drain_it(scene)
    append(scene.services, scene.workspace, "s9", [line("phase_rolled_back", detail="phase:F1")])


def delete_the_card(scene: Scene) -> None:
    with scene.services.database.transaction(Role.READER, scene.workspace) as tx:
        row = tx.execute("SELECT card_id FROM cards WHERE subject = 'degenza'").fetchone()
    assert row is not None
    revise(scene.services, scene.workspace, row["card_id"], status="deleted")
    drain_it(scene)


def tell_of_a_promotion(scene: Scene) -> None:
    folder = scene.services.settings.inbox_path / scene.workspace
    folder.mkdir(parents=True, exist_ok=True)
    lines = (
        line("concept_clarified", seq=1, subject="turno", detail="fascia di otto ore"),
        line("memory_promoted", seq=2, detail="seq:1"),
    )
    (folder / "old.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    read_inbox(scene.services, scene.workspace)


def promote_it(scene: Scene) -> None:
    offered = preview(scene.services, scene.workspace, "old")
    assert offered.preview_id is not None
    decided = decide(scene.services, scene.workspace, offered.preview_id, selected=[1], declined=[])
    revise(scene.services, scene.workspace, decided.verdicts[0].card_id or "", status="deleted")
    drain_it(scene)


def let_a_decision_in(scene: Scene) -> None:
    revise(scene.services, scene.workspace, "mem-0003", kind="exemplar", type="table_promoted")
    drain_it(scene)


def make_it_a_memory_again(scene: Scene) -> None:
    revise(scene.services, scene.workspace, "mem-0003", kind="memory", type="concept_clarified")
    drain_it(scene)


FAULTS: list[tuple[str, Act, str, Act]] = [
    ("ledger_accepted", put_a_bad_line, "1 line is in quarantine", give_the_file_up),
    ("cards_keep_to_the_gate", change_past_the_queue, "mem-0002: changed without a revision", decide_anew),
    ("sources_still_effective", roll_back, "counts any more", delete_the_card),
    ("index_matches_registry", lose, "2 points on the server for 3 active cards", reconcile_it),
    ("index_is_fresh", change_long_ago, "1 card changed up to 20 min ago", drain_it),
    ("propagation_flows", wait_for_long, "1 card waits, the oldest for 60 min", drain_it),
    ("propagation_flows", park, "1 card is parked", retry_it),
    ("embedding_fingerprint", speak_another_language, "language: it -> en", rebuild_it),
    ("points_match_cards", hold_another_text, "1 stale", reconcile_it),
    ("no_orphans", add_an_orphan, "1 orphan", reconcile_it),
    ("no_forbidden_type", take_for_an_exemplar, "1 wrong kind", reconcile_it),
    ("no_forbidden_type", let_a_decision_in, "1 forbidden type", make_it_a_memory_again),
    ("cards_keep_to_the_gate", let_a_decision_in, "mem-0003: of a type", make_it_a_memory_again),
    ("vector_configuration", lose_the_alias, "1 wrong alias", reconcile_it),
    ("promotions_have_cards", tell_of_a_promotion, "old:seq:2", promote_it),
]


def _result(scene: Scene, instance: dg.DagsterInstance, name: str) -> dg.AssetCheckResult:
    results = {result.check_name: result for result in all_results(instance, scene.services, scene.workspace)}
    return results[name]


@pytest.mark.parametrize(
    ("name", "plant", "told", "repair"), FAULTS, ids=[f"{name}-{plant.__name__}" for name, plant, _, _ in FAULTS]
)
def test_it_fails_for_a_planted_fault_and_passes_after_the_repair(
    scene: Scene, instance: dg.DagsterInstance, name: str, plant: Act, told: str, repair: Act
) -> None:
    plant(scene)
    failed = _result(scene, instance, name)
    repair(scene)
    passed = _result(scene, instance, name)

    assert not failed.passed
    assert told in (failed.description or "")
    assert (failed.severity is dg.AssetCheckSeverity.WARN) is (name in WARNINGS)
    assert passed.passed, passed.description


def test_every_check_has_a_fault() -> None:
    assert {name for name, *_ in FAULTS} == {key.name for check in CHECKS for key in check.check_keys}


def test_every_kind_of_drift_fails_a_check() -> None:
    of_the_ledger = {DriftKind.MARKER_WITHOUT_CARD, DriftKind.UNSUPPORTED_CARD}  # promotions_have_cards and sources_...
    assert {kind for kinds in SCANNED.values() for kind in kinds} | of_the_ledger == set(DriftKind)


def test_a_file_that_was_refused_is_not_hidden_by_reports(instance: dg.DagsterInstance, scene: Scene) -> None:
    refused = dg.AssetMaterialization("session_ledger", partition=scene.workspace, metadata={"files_refused": 1})
    instance.report_runless_asset_event(refused)
    for _ in range(21):
        instance.report_runless_asset_event(dg.AssetMaterialization("session_ledger", partition=scene.workspace))

    assert "1 file was refused whole" in (_result(scene, instance, "ledger_accepted").description or "")


def test_a_retired_workspace_passes_every_check_with_that_note(scene: Scene, instance: dg.DagsterInstance) -> None:
    lose(scene)
    retire_workspace(scene.services, scene.workspace)
    results = all_results(instance, scene.services, scene.workspace)
    restore_workspace(scene.services, scene.workspace)
    reconcile_it(scene)

    assert {result.passed for result in results} == {True}
    assert {str(result.metadata["status"].value) for result in results} == {"retired"}


def test_a_change_on_its_way_is_no_lasting_difference(scene: Scene, instance: dg.DagsterInstance) -> None:
    def failing() -> tuple[set[str | None], set[str | None]]:
        results = quick_results(instance, scene.services, scene.workspace)
        return (
            {result.check_name for result in results if not result.passed},
            {result.check_name for result in lasting(results) if not result.passed},
        )

    revise(scene.services, scene.workspace, "mem-0001", detail="appena cambiato", updated_at=datetime.now(UTC))
    assert failing() == ({"index_matches_registry"}, set())
    drain_it(scene)
    lose(scene)
    assert failing() == ({"index_matches_registry"}, {"index_matches_registry"})
    reconcile_it(scene)


def test_a_card_that_got_past_the_gate_stops_the_run_before_it_is_embedded(
    scene: Scene, instance: dg.DagsterInstance
) -> None:
    change_past_the_queue(scene)
    instance.add_dynamic_partitions("workspace", [scene.workspace])

    outcome = defs.resolve_job_def("index_job").execute_in_process(
        instance=instance,
        partition_key=scene.workspace,
        run_config=QUIET,
        resources={"services": scene.services},
        raise_on_error=False,
    )
    decide_anew(scene)

    assert not outcome.success
    made = {event.asset_key.to_user_string() for event in outcome.get_asset_materialization_events() if event.asset_key}
    assert made == {"session_ledger", "effective_ledger", "session_memories", "memory_cards"}
    failed = {check.check_name for check in outcome.get_asset_check_evaluations() if not check.passed}
    assert failed == {"cards_keep_to_the_gate"}


def test_a_file_that_was_refused_is_warned_of_until_it_is_read(scene: Scene, instance: dg.DagsterInstance) -> None:
    folder = scene.services.settings.inbox_path / scene.workspace
    folder.mkdir(parents=True, exist_ok=True)
    bad = folder / "no session.jsonl"
    bad.write_bytes(b"{}\n")

    def read() -> str:
        instance.add_dynamic_partitions("workspace", [scene.workspace])
        outcome = defs.resolve_job_def("ledger_job").execute_in_process(
            instance=instance,
            partition_key=scene.workspace,
            run_config=QUIET,
            resources={"services": scene.services},
        )
        (told,) = [check for check in outcome.get_asset_check_evaluations() if check.check_name == "ledger_accepted"]
        return told.description or ""

    assert read() == "1 file was refused whole"
    bad.unlink()
    assert read() == "every line was taken"
