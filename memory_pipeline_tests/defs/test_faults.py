"""What a run tells when a server, a card or the index itself is not as it should be."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from memory_pipeline.core.projection import point_id
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.defs.assets.index import memory_collection
from memory_pipeline.defs.checks import index_matches_registry
from memory_pipeline.defs.running import AssetFailed
from memory_pipeline.operations.index import index
from memory_pipeline.operations.measure import measure_index
from memory_pipeline.operations.services import Services
from memory_pipeline.store import propagations
from memory_pipeline.store.database import Role
from memory_pipeline_tests.defs.conftest import QUIET, Materialize, metadata, values
from memory_pipeline_tests.embedding.scripted_ollama import ScriptedOllama, serve
from memory_pipeline_tests.flows import ABLATION, MORTALITY, READMISSION, closed_port, promote, revise, with_settings


@pytest.fixture
def scripted(services: Services) -> Iterator[tuple[ScriptedOllama, Services]]:
    """The stack with an embedder that misbehaves as told."""
    with serve() as server, with_settings(services, ollama_url=server.url, embedding_model="tiny") as changed:
        yield server, changed


@pytest.fixture
def without_embedder(services: Services) -> Iterator[Services]:
    """The stack with an embedder that is down."""
    with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as changed:
        yield changed


def _run(
    instance: dg.DagsterInstance, services: Services, workspace: str, selection: dg.AssetSelection
) -> dg.ExecuteInProcessResult:
    """Run a part of the graph."""
    instance.add_dynamic_partitions("workspace", [workspace])
    return dg.materialize(
        [memory_collection, index_matches_registry],
        selection=selection,
        tags={"dagster/partition": workspace},  # `partition_key` is refused where a check is run alone
        instance=instance,
        resources={"services": services},
        run_config=QUIET,
        raise_on_error=False,
    )


def _check(instance: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckEvaluation:
    """Evaluate the check alone."""
    check = dg.AssetCheckKey(memory_collection.key, "index_matches_registry")
    (evaluation,) = _run(instance, services, workspace, dg.AssetSelection.checks(check)).get_asset_check_evaluations()
    assert evaluation.partition == workspace
    return evaluation


def _collection(services: Services, workspace: str) -> str:
    measure = measure_index(services, workspace)
    assert measure is not None
    return measure.collection


def test_a_card_that_cannot_be_embedded_is_shown_and_stops_no_other(
    workspace: Workspace,
    scripted: tuple[ScriptedOllama, Services],
    instance: dg.DagsterInstance,
    materialize: Materialize,
) -> None:
    server, services = scripted
    promote(services, workspace.slug, [ABLATION, READMISSION, MORTALITY])
    bad = READMISSION["detail"]
    server.fault = lambda texts: (500, {"error": "boom <b>"}) if any(bad in text for text in texts) else None

    run = materialize(workspace.slug, services)

    assert not run.checks_passed
    dense = metadata(instance, "dense_embeddings")
    assert (dense["cards"], dense["failed"]) == (3, 1)
    assert [row["card"] for row in dense["failed_cards"]] == ["mem-0002"]
    collection = metadata(instance, "memory_collection")
    assert (collection["points"], collection["failed"], collection["pending"]) == (2, 1, 1)
    assert [(row["card"], row["state"]) for row in collection["waiting"]] == [("mem-0002", "pending")]
    assert collection["waiting"][0]["last error"]
    log = [entry.user_message for entry in instance.all_logs(run.run_id) if int(entry.level) >= logging.WARNING]
    assert any("mem-0002 waits" in message for message in log)

    server.fault = lambda texts: None
    assert materialize(workspace.slug, services).checks_passed


def test_an_embedder_that_is_down_fails_the_run_by_its_name(
    services: Services,
    without_embedder: Services,
    workspace: Workspace,
    instance: dg.DagsterInstance,
    materialize: Materialize,
) -> None:
    promote(services, workspace.slug, [ABLATION])

    with pytest.raises(AssetFailed, match="EmbedderUnavailable") as raised:
        materialize(workspace.slug, without_embedder)

    assert raised.value.exit_code == 32
    assert raised.value.asset in ("dense_embeddings", "sparse_embeddings")
    assert metadata(instance, "memory_cards")["cards"] == 1
    run = instance.get_run_by_id(raised.value.run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.FAILURE
    assert materialize(workspace.slug).checks_passed


def test_a_failure_in_the_log_says_what_to_do_and_holds_no_secret(
    services: Services,
    workspace: Workspace,
    instance: dg.DagsterInstance,
    materialize: Materialize,
) -> None:
    with (
        with_settings(services, postgres_port=closed_port()) as without_store,
        pytest.raises(AssetFailed, match="StoreUnavailable") as raised,
    ):
        materialize(workspace.slug, without_store)

    assert raised.value.exit_code == 30
    assert raised.value.asset == "session_ledger"
    logs = instance.all_logs(raised.value.run_id)
    events = [entry.dagster_event for entry in logs if entry.dagster_event]
    assert sum(event.event_type is dg.DagsterEventType.STEP_RESTARTED for event in events) == 2
    (failed,) = [event for event in events if event.is_step_failure]
    told = failed.step_failure_data.user_failure_data
    assert told is not None
    assert values(told.metadata)["error"] == "StoreUnavailable"
    assert values(told.metadata)["hint"]
    written = repr(logs)
    for role in Role:
        assert services.settings.secret(role.value).get_secret_value() not in written


def test_a_qdrant_that_is_down_fails_the_run_by_its_name(
    services: Services, workspace: Workspace, materialize: Materialize
) -> None:
    promote(services, workspace.slug, [ABLATION])

    with (
        with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as without_index,
        pytest.raises(AssetFailed, match="IndexUnavailable") as raised,
    ):
        materialize(workspace.slug, without_index)

    assert raised.value.exit_code == 31


def test_an_unknown_workspace_fails_at_once(instance: dg.DagsterInstance, materialize: Materialize) -> None:
    with pytest.raises(AssetFailed, match="UnknownWorkspace") as raised:
        materialize("t-never-made")

    assert raised.value.exit_code == 11
    events = [entry.dagster_event for entry in instance.all_logs(raised.value.run_id) if entry.dagster_event]
    assert not [event for event in events if event.event_type is dg.DagsterEventType.STEP_UP_FOR_RETRY]


def test_a_drain_that_is_broken_off_fails_the_collection(
    services: Services, without_embedder: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    promote(services, workspace.slug, [ABLATION])
    index(services, workspace.slug)
    promote(services, workspace.slug, [READMISSION], session="s2")

    outcome = _run(instance, without_embedder, workspace.slug, dg.AssetSelection.assets(memory_collection))

    assert not outcome.success
    told = outcome.failure_data_for_node("memory_collection")
    assert told is not None
    assert told.user_failure_data is not None
    entries = values(told.user_failure_data.metadata)
    assert (entries["error"], entries["pending"]) == ("EmbedderUnavailable", 1)
    assert entries["failed_cards"][0]["card"] == "mem-0002"


def test_the_check_passes_for_an_index_that_follows(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    index(services, workspace.slug)

    evaluation = _check(instance, services, workspace.slug)

    assert evaluation.passed
    told = values(evaluation.metadata)
    assert (told["active_cards"], told["current_points"], told["points_on_server"]) == (2, 2, 2)


def _never_indexed(services: Services, workspace: str) -> None:
    """Nothing is done: there is no index."""


def _points_gone(services: Services, workspace: str) -> None:
    index(services, workspace)
    services.index.delete(_collection(services, workspace), [point_id("mem-0001")])


def _orphan(services: Services, workspace: str) -> None:
    index(services, workspace)
    collection = _collection(services, workspace)
    with services.database.transaction(Role.OWNER, workspace) as tx:
        tx.execute("ALTER TABLE cards DISABLE TRIGGER card_changes")
        tx.execute("UPDATE cards SET status = 'deleted' WHERE card_id = 'mem-0001' AND workspace = %s", (workspace,))
        tx.execute("ALTER TABLE cards ENABLE TRIGGER card_changes")
    assert services.index.count(collection) == 2


def _edit_waiting(services: Services, workspace: str) -> None:
    index(services, workspace)
    revise(services, workspace, "mem-0001", detail="un testo nuovo")


def _parked(services: Services, workspace: str) -> None:
    _edit_waiting(services, workspace)
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        for _ in range(propagations.MAX_ATTEMPTS):
            propagations.make_due(tx, workspace)
            for card in propagations.waiting(tx, workspace, limit=10):
                propagations.postpone(tx, workspace, card, "EmbedderUnavailable: planted")


def _collection_gone(services: Services, workspace: str) -> None:
    index(services, workspace)
    services.index.drop(_collection(services, workspace))


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (_never_indexed, "never indexed"),
        (_points_gone, "1 point on the server for 2 active cards"),
        (_orphan, "1 card that is not active has a point"),
        (_edit_waiting, "1 card waits for propagation"),
        (_parked, "1 is parked"),
        (_collection_gone, "is not on the server"),
    ],
)
def test_the_check_fails_on_a_planted_fault(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, plant: Any, told: str
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    plant(services, workspace.slug)

    evaluation = _check(instance, services, workspace.slug)

    assert not evaluation.passed
    assert evaluation.description is not None
    assert told in evaluation.description


def test_the_check_names_the_card_that_is_parked_and_its_last_error(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    promote(services, workspace.slug, [ABLATION, READMISSION])
    _parked(services, workspace.slug)

    (row,) = values(_check(instance, services, workspace.slug).metadata)["waiting"]

    assert (row["card"], row["state"], row["attempts"]) == ("mem-0001", "dead", propagations.MAX_ATTEMPTS)
    assert row["last error"] == "EmbedderUnavailable: planted"


def test_a_promotion_is_followed_by_the_next_run(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance, materialize: Materialize
) -> None:
    materialize(workspace.slug)
    promote(services, workspace.slug, [ABLATION])
    assert not _check(instance, services, workspace.slug).passed

    assert materialize(workspace.slug).checks_passed
