"""Backfills through the real daemon: over some workspaces and over all, failed and retried, cancelled half-way.

The daemon, the webserver and the code server are processes of their own, over the stack under test. Workspaces that
other tests left are retired meanwhile, so that the sensors, which run as always, leave them alone.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import httpx
import psutil
import pytest
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from memory_pipeline.core.workspace import WorkspaceStatus
from memory_pipeline.definitions import defs
from memory_pipeline.harness.control_room import dagster_environment, dagster_instance, deployed
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import list_workspaces, restore_workspace, retire_workspace
from memory_pipeline.settings import Settings
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.defs.staleness import statuses
from memory_pipeline_tests.flows import ABLATION, READMISSION, ask, closed_port, found, promote, revise
from memory_pipeline_tests.operations.strangers import raw_client
from memory_pipeline_tests.operations.test_consistency import Scene, change_past_the_queue

pytestmark = pytest.mark.embedded

ASSETS = [
    "session_ledger",
    "effective_ledger",
    "session_memories",
    "memory_cards",
    "dense_embeddings",
    "sparse_embeddings",
    "memory_collection",
]
PATIENCE_SECONDS = 300.0


@dataclass
class Room:
    """The control room over the stack: its instance, and the processes that were started."""

    services: Services
    instance: dg.DagsterInstance
    environment: Mapping[str, str]
    folder: Path
    url: str = ""

    @contextlib.contextmanager
    def running(self, *command: str) -> Iterator[None]:
        """One of Dagster's commands with what it starts; all of it ends with the block."""
        with (self.folder / f"{command[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command, "-w", str(deployed("workspace.yaml").resolve())],
                env=dict(self.environment),
                cwd=self.environment["DAGSTER_HOME"],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
                process.terminate()
                _, alive = psutil.wait_procs(family, timeout=20)
                for left in alive:
                    left.kill()
            process.wait()

    def ask(self, query: str, **variables: Any) -> Any:
        """The webserver's answer to a query of GraphQL."""
        answer = httpx.post(f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=60).json()
        assert "errors" not in answer, answer
        (told,) = answer["data"].values()
        return told

    def runs(self, backfill: str) -> dict[str, dg.DagsterRunStatus]:
        """Status of each run of a backfill, by workspace."""
        found = self.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill}))
        assert len({run.tags["dagster/partition"] for run in found}) == len(found), "one run per workspace"
        return {run.tags["dagster/partition"]: run.status for run in found}


@pytest.fixture
def room(settings: Settings, services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    for name in ("DAGSTER_HOME", "MEMORY_STATE", "MEMORY_DAGSTER_PG_URL"):
        monkeypatch.setenv(name, "")  # given back when the test ends
    others = [each.slug for each in list_workspaces(services) if each.status is WorkspaceStatus.ACTIVE]
    for slug in others:
        retire_workspace(services, slug)
    try:
        with dagster_instance(settings) as instance:
            yield Room(services, instance, dagster_environment(settings), tmp_path)
    finally:
        for slug in others:
            restore_workspace(services, slug)


def _until(done: Callable[[], bool], told: Callable[[], object]) -> None:
    """Wait for processes that say nothing when they are done."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < deadline, told()
        time.sleep(0.25)


def _filled(services: Services, make_workspace: MakeWorkspace, count: int) -> list[str]:
    slugs = sorted(make_workspace().slug for _ in range(count))
    for slug in slugs:
        promote(services, slug, [ABLATION, READMISSION])
    return slugs


def _embedded_at(services: Services, slug: str) -> list[Any]:
    with services.database.transaction(Role.INDEXER, slug) as tx:
        return [row["at"] for row in tx.execute("SELECT embedded_at AS at FROM dense_embeddings ORDER BY 1")]


def test_a_backfill_over_three_workspaces_is_three_runs_of_the_daemon(
    room: Room, services: Services, make_workspace: MakeWorkspace
) -> None:
    slugs = _filled(services, make_workspace, 3)
    for slug in slugs:
        drain(services, slug)  # so that no sensor asks for runs of its own
    room.instance.add_dynamic_partitions("workspace", slugs)
    backfill = f"b{uuid.uuid4().hex[:8]}"
    room.instance.add_backfill(
        PartitionBackfill.from_asset_partitions(
            backfill_id=backfill,
            asset_graph=defs.resolve_asset_graph(),
            partition_names=slugs,
            asset_selection=[dg.AssetKey(name) for name in ASSETS],
            backfill_timestamp=time.time(),
            tags={},
            dynamic_partitions_store=room.instance,
            all_partitions=False,
            title=None,
            description=None,
            run_config=None,
        )
    )

    with room.running("dagster._daemon", "run"):
        _until(
            lambda: room.runs(backfill) == dict.fromkeys(slugs, dg.DagsterRunStatus.SUCCESS),
            lambda: (room.runs(backfill), (room.folder / "dagster._daemon.log").read_text()[-5000:]),
        )

    for slug in slugs:
        assert statuses(room.instance, slug) == {}
        assert found(ask(services, slug, "ablazione"))[0] == "mem-0001"


LAUNCH = """
mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}
"""
RETRY = """
mutation($params: ReexecutionParams!) {
  reexecutePartitionBackfill(reexecutionParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}
"""
CANCEL = """
mutation($id: String!) { cancelPartitionBackfill(backfillId: $id) { __typename } }
"""


@pytest.fixture
def dev(room: Room) -> Iterator[Room]:
    """The whole control room: webserver, daemon, code server."""
    port = closed_port()
    room.url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{room.url}/server_info", timeout=10).is_success
        return False

    with room.running("dagster", "dev", "-h", "127.0.0.1", "-p", str(port)):
        _until(answers, lambda: (room.folder / "dagster.log").read_text()[-5000:])
        yield room


def _launch(dev: Room, **params: Any) -> str:
    selection = [{"path": [name]} for name in ASSETS]
    told = dev.ask(LAUNCH, params={"assetSelection": selection, **params})
    assert told["__typename"] == "LaunchBackfillSuccess", told
    return str(told["backfillId"])


def _ended(dev: Room, backfill: str) -> BulkActionStatus:
    def status() -> BulkActionStatus:
        found = dev.instance.get_backfill(backfill)
        assert found is not None
        return found.status

    going_on = (BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING, BulkActionStatus.FAILING)
    _until(lambda: status() not in going_on, lambda: (status(), dev.runs(backfill)))
    return status()


@pytest.mark.slow
def test_one_of_three_fails_and_is_retried_alone_and_an_edit_is_followed_by_itself(
    dev: Room, services: Services, make_workspace: MakeWorkspace
) -> None:
    slugs = _filled(services, make_workspace, 3)
    dev.instance.add_dynamic_partitions("workspace", slugs)
    for slug in slugs:
        drain(services, slug)
    bad = slugs[1]
    with raw_client(services) as raw:
        change_past_the_queue(Scene(services, bad, raw))
    embedded = {slug: _embedded_at(services, slug) for slug in slugs}

    first = _launch(dev, partitionNames=slugs)
    assert _ended(dev, first) is BulkActionStatus.COMPLETED_FAILED
    assert {slug for slug, status in dev.runs(first).items() if status is dg.DagsterRunStatus.FAILURE} == {bad}

    revise(services, bad, "mem-0002", detail="deciso da un revisore")
    told = dev.ask(RETRY, params={"parentRunId": first, "strategy": "FROM_FAILURE"})
    again = told["backfillId"]
    assert _ended(dev, again) is BulkActionStatus.COMPLETED_SUCCESS
    assert dev.runs(again) == {bad: dg.DagsterRunStatus.SUCCESS}
    for slug in set(slugs) - {bad}:
        assert _embedded_at(services, slug) == embedded[slug], "nothing was embedded again"

    # over all: what was good is looked at and not made again
    embedded = {slug: _embedded_at(services, slug) for slug in slugs}
    everything = _launch(dev, allPartitions=True)
    assert _ended(dev, everything) is BulkActionStatus.COMPLETED_SUCCESS
    assert set(slugs) <= set(dev.runs(everything))
    assert {slug: _embedded_at(services, slug) for slug in slugs} == embedded

    # nobody asks for this one: a sensor drains it, and the graph shows it
    before = _version(dev.instance, slugs[0])
    revise(services, slugs[0], "mem-0001", detail="una modifica che nessuno annuncia")
    _until(
        lambda: _version(dev.instance, slugs[0]) != before and statuses(dev.instance, slugs[0]) == {},
        lambda: (statuses(dev.instance, slugs[0]), (dev.folder / "dagster.log").read_text()[-5000:]),
    )
    assert found(ask(services, slugs[0], "una modifica che nessuno annuncia"))[0] == "mem-0001"


def _version(instance: dg.DagsterInstance, slug: str) -> str:
    """The version of a workspace's collection on the graph."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("memory_collection"), asset_partitions=[slug])
    (record,) = instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    return (record.asset_materialization.tags or {})["dagster/data_version"]


@pytest.mark.slow
def test_a_backfill_that_is_cancelled_half_way_leaves_whole_workspaces(
    dev: Room, services: Services, make_workspace: MakeWorkspace
) -> None:
    slugs = _filled(services, make_workspace, 8)
    dev.instance.add_dynamic_partitions("workspace", slugs)
    backfill = _launch(dev, partitionNames=slugs)
    _until(
        lambda: dg.DagsterRunStatus.SUCCESS in dev.runs(backfill).values(),
        lambda: dev.runs(backfill),
    )

    assert dev.ask(CANCEL, id=backfill)["__typename"] == "CancelBackfillSuccess"

    assert _ended(dev, backfill) is BulkActionStatus.CANCELED
    ended = dev.runs(backfill)
    assert set(ended.values()) <= {
        dg.DagsterRunStatus.SUCCESS,
        dg.DagsterRunStatus.CANCELED,
        dg.DagsterRunStatus.FAILURE,
    }
    assert dg.DagsterRunStatus.SUCCESS in ended.values()
    for slug in slugs:
        assert drain(services, slug, wait=60, hurry=True).settled
        assert len(found(ask(services, slug, "ablazione e riammissione"))) == 2
