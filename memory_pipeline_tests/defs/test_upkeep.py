"""The jobs that keep the projection, executed in process, and what they leave on the graph."""

from __future__ import annotations

import threading
from typing import Any

import dagster as dg
import pytest

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.definitions import defs
from memory_pipeline.defs.checks import QUICK, SCANNED
from memory_pipeline.index.vector_index import VectorIndex
from memory_pipeline.operations.index import index
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import retire_workspace
from memory_pipeline.settings import Settings
from memory_pipeline.store import generations
from memory_pipeline.store.database import Role
from memory_pipeline_tests.defs.conftest import QUIET
from memory_pipeline_tests.defs.staleness import statuses
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
from memory_pipeline_tests.operations.strangers import raw_client
from memory_pipeline_tests.operations.test_consistency import Scene, lose


def run(
    instance: dg.DagsterInstance, services: Services, job: str, workspace: str, **fails: bool
) -> dg.ExecuteInProcessResult:
    """One run of a job for one workspace."""
    instance.add_dynamic_partitions("workspace", [workspace])
    return defs.resolve_job_def(job).execute_in_process(
        instance=instance,
        partition_key=workspace,
        run_config=QUIET,
        resources={"services": services},
        raise_on_error=not fails.get("fails", False),
    )


def checks(instance: dg.DagsterInstance, workspace: str) -> dict[str, bool]:
    """The newest result of each check on the collection."""
    records = instance.event_log_storage.get_event_records(
        dg.EventRecordsFilter(event_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION), ascending=True
    )
    events = [record.event_log_entry.dagster_event for record in records]
    results = [event.asset_check_evaluation_data for event in events if event is not None]
    return {result.check_name: result.passed for result in results if result.partition == workspace}


def test_a_drain_an_outage_a_repair_and_a_rebuild_are_all_on_the_graph(
    services: Services, workspace: Workspace, instance: dg.DagsterInstance
) -> None:
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION])

    drained = run(instance, services, "propagate_job", slug).output_for_node("propagate")

    assert (drained["upserted"], drained["pending"]) == (2, 0)
    assert statuses(instance, slug) == {}
    assert checks(instance, slug) == dict.fromkeys(QUICK, True)

    revise(services, slug, "mem-0001", detail="una modifica")
    with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as without_embedder:
        failed = run(instance, without_embedder, "propagate_job", slug, fails=True)
    assert not failed.success
    data = failed.failure_data_for_node("propagate")
    assert data is not None
    assert data.user_failure_data is not None
    assert data.user_failure_data.metadata["error"].value == "EmbedderUnavailable"
    assert not checks(instance, slug)["index_matches_registry"]
    assert statuses(instance, slug) == {"dense_embeddings": "stale", "sparse_embeddings": "stale"}

    drain(services, slug, hurry=True)
    with raw_client(services) as raw:
        lose(Scene(services, slug, raw))
    failing = run(instance, services, "consistency_job", slug).output_for_node("check_everything")
    assert set(failing) == {"index_matches_registry", "points_match_cards"}
    assert not checks(instance, slug)["points_match_cards"]
    mended = run(instance, services, "reconcile_job", slug).output_for_node("reconcile")
    assert mended["queued"] == 1
    assert {name: checks(instance, slug)[name] for name in (*QUICK, *SCANNED)} == dict.fromkeys(
        (*QUICK, *SCANNED), True
    )
    assert statuses(instance, slug) == {}

    built = run(instance, services, "rebuild_job", slug).output_for_node("rebuild")
    assert (built["cards"], built["embedded"]) == (2, 0)
    assert built["replaced"] != built["collection"]
    assert statuses(instance, slug) == {}
    assert found(ask(services, slug, "riammissione entro 30 giorni"))[0] == "mem-0002"

    retire_workspace(services, slug)
    for job, op in (("propagate_job", "propagate"), ("rebuild_job", "rebuild"), ("reconcile_job", "reconcile")):
        assert run(instance, services, job, slug).output_for_node(op) == {"status": "retired"}


class _Writers:
    """Counts who writes to the index at one time."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now, self.all = self.now + 1, self.all + 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.now -= 1


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> _Writers:
    """Every upsert of this process, whoever makes it."""
    counted, upsert = _Writers(), VectorIndex.upsert

    def counting(index: VectorIndex, *args: Any, **named: Any) -> Any:
        with counted:
            return upsert(index, *args, **named)

    monkeypatch.setattr(VectorIndex, "upsert", counting)
    return counted


def test_a_run_and_the_command_line_at_once_are_one_writer(
    settings: Settings, services: Services, workspace: Workspace, instance: dg.DagsterInstance, writers: _Writers
) -> None:
    """Whatever started them: a run through the queue, and `index` from a terminal, which knows no queue."""
    slug = workspace.slug
    promote(services, slug, [ABLATION, READMISSION, MORTALITY])
    together, problems = threading.Barrier(3), []

    def terminal() -> None:
        with Services(settings, via="cli") as own:
            together.wait(timeout=60)
            try:
                for number in range(5):
                    revise(own, slug, "mem-0003", detail=f"dal terminale {number}")
                    index(own, slug)
            except Exception as error:  # noqa: BLE001 - told by the test's own thread
                problems.append(error)

    threads = [threading.Thread(target=terminal)]
    threads.append(threading.Thread(target=lambda: (together.wait(timeout=60), drain(services, slug, wait=60))))
    for thread in threads:
        thread.start()
    together.wait(timeout=60)
    for number in range(5):
        revise(services, slug, "mem-0001", detail=f"da una sessione {number}")
        run(instance, services, "propagate_job", slug)
    for thread in threads:
        thread.join()
    drain(services, slug, wait=60, hurry=True)

    assert problems == []
    assert writers.most == 1
    assert writers.all >= 3
    with services.database.transaction(Role.INDEXER, slug) as tx:
        serving = generations.serving(tx, slug)
    assert serving is not None
    assert services.index.count(serving.collection) == 3
    run(instance, services, "consistency_job", slug)
    assert {name: checks(instance, slug)[name] for name in SCANNED} == dict.fromkeys(SCANNED, True)
