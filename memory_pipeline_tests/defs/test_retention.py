"""What the event log forgets, and that the graph shows the same afterwards."""

from __future__ import annotations

import dagster as dg

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.definitions import defs
from memory_pipeline.defs.reporting import report_workspace
from memory_pipeline.defs.retention import forget_events, forget_runs
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.store.database import Role
from memory_pipeline_tests.defs.conftest import QUIET
from memory_pipeline_tests.defs.staleness import statuses
from memory_pipeline_tests.flows import ABLATION, promote, revise


def _index(instance: dg.DagsterInstance, services: Services, workspace: str, **tags: str) -> str:
    return (
        defs.resolve_job_def("index_job")
        .execute_in_process(
            instance=instance,
            partition_key=workspace,
            run_config=QUIET,
            resources={"services": services},
            tags=tags,
        )
        .run_id
    )


def _events(instance: dg.DagsterInstance) -> int:
    return len(
        instance.event_log_storage.get_event_records(
            dg.EventRecordsFilter(event_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        )
    )


def test_old_runs_and_events_go_and_the_graph_stays(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    instance.add_dynamic_partitions("workspace", [slug])
    by_hand = _index(instance, services, slug)
    first = _index(instance, services, slug, **{"dagster/sensor_name": "inbox_sensor"})
    second = _index(instance, services, slug, **{"dagster/sensor_name": "inbox_sensor"})
    third = _index(instance, services, slug, **{"dagster/schedule_name": "nightly"})
    for text in ("prima", "seconda", "terza"):
        revise(services, slug, "mem-0001", detail=f"{text} modifica")
        drain(services, slug)
        report_workspace(instance, services, slug)
    before = _events(instance)

    assert forget_runs(instance, days=1, failed_days=1) == 0
    assert forget_events(instance, days=1) == 0
    forgotten = forget_runs(instance, days=0, failed_days=0)
    gone = forget_events(instance, days=0)

    # the newest event of the ledger is of the third run; what it may rest on is of the second
    assert (forgotten, [run.run_id for run in instance.get_runs()]) == (1, [third, second, by_hand])
    assert instance.get_run_by_id(first) is None
    # each of the three edits was four reports: those of the last one stay, and what they may rest on
    assert gone == 4
    assert before - _events(instance) == 7 + 4
    assert statuses(instance, slug) == {}
    assert report_workspace(instance, services, slug).assets == ()
    revise(services, slug, "mem-0001", detail="quarta modifica")
    report_workspace(instance, services, slug)
    assert statuses(instance, slug) == {"dense_embeddings": "stale", "sparse_embeddings": "stale"}


def test_maintenance_forgets_settled_rows_and_keeps_what_waits(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION])
    drain(services, slug)
    with services.database.transaction(Role.OWNER, slug) as tx:
        tx.execute("UPDATE propagations SET settled_at = now() - interval '40 days', created_at = '2026-01-01'")
    revise(services, slug, "mem-0001", detail="aspetta")

    outcome = defs.resolve_job_def("maintenance_job").execute_in_process(
        instance=instance, run_config=QUIET, resources={"services": services}
    )

    assert outcome.output_for_node("maintain")["settled"] >= 1
    with services.database.transaction(Role.INDEXER, slug) as tx:
        rows = tx.execute("SELECT state, revision FROM propagations").fetchall()
    assert [(row["state"], row["revision"]) for row in rows] == [("pending", 2)]
    assert drain(services, slug).settled
