"""The sensors and schedules, ticked by hand on the real registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from memory_pipeline.core.errors import StoreUnavailable
from memory_pipeline.core.projection import point_id
from memory_pipeline.definitions import defs
from memory_pipeline.defs import sensors
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.scratch import scratch_workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import list_workspaces, restore_workspace, retire_workspace
from memory_pipeline.store import upkeep
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.defs.conftest import data_version, metadata
from memory_pipeline_tests.defs.staleness import statuses
from memory_pipeline_tests.defs.ticks import Tick, tick
from memory_pipeline_tests.flows import ABLATION, READMISSION, closed_port, line, promote, revise, with_settings
from memory_pipeline_tests.operations.strangers import raw_client
from memory_pipeline_tests.operations.test_consistency import Scene


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance that the check of a run request's partition can open anew, as the daemon does."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def four(services: Services, make_workspace: MakeWorkspace, instance: dg.DagsterInstance) -> list[str]:
    """Four workspaces with a partition each."""
    slugs = sorted(make_workspace().slug for _ in range(4))
    instance.add_dynamic_partitions("workspace", slugs)
    return slugs


@pytest.fixture
def only_these(services: Services) -> None:
    """Nothing waits in workspaces that other tests left."""
    for known in list_workspaces(services):
        with services.database.transaction(Role.INDEXER, known.slug) as tx:
            tx.execute("UPDATE propagations SET state = 'done', settled_at = now() WHERE state = 'pending'")


@pytest.fixture
def scratch(services: Services) -> Iterator[str]:
    """The slug of a workspace such as an evaluation makes."""
    with scratch_workspace(services, title="Evaluation", language="it", database="cardio") as made:
        yield made.slug


# --- partitions --------------------------------------------------------------------------------------------------


def _new_partitions(instance: dg.DagsterInstance, services: Services) -> tuple[set[str], str]:
    ticked = tick("workspaces_sensor", instance, services)
    assert not ticked.runs
    added = {key for request in ticked.data.dynamic_partitions_requests or [] for key in request.partition_keys}
    instance.add_dynamic_partitions("workspace", sorted(added))
    return added, ticked.told


def test_each_active_workspace_gets_its_partition_once(
    services: Services, make_workspace: MakeWorkspace, scratch: str, instance: dg.DagsterInstance
) -> None:
    first, retired = make_workspace().slug, make_workspace().slug
    retire_workspace(services, retired)

    added, reason = _new_partitions(instance, services)

    assert first in added
    assert not added & {retired, scratch}
    assert f"{len(added)} of {len(added)} active workspaces" in reason
    rest, reason = _new_partitions(instance, services)
    assert rest == set()
    assert reason == f"{len(added)} active workspaces of {len(list_workspaces(services))}; each has its partition"
    restore_workspace(services, retired)
    later = make_workspace().slug
    assert _new_partitions(instance, services)[0] == {later, retired}


def test_a_registry_that_is_down_fails_the_tick_by_its_name(services: Services, instance: dg.DagsterInstance) -> None:
    with with_settings(services, postgres_port=closed_port()) as without_store, pytest.raises(StoreUnavailable):
        tick("workspaces_sensor", instance, without_store)


# --- propagation -------------------------------------------------------------------------------------------------


def test_four_workspaces_at_once_are_four_runs_and_two_edits_are_two(
    services: Services,
    four: list[str],
    only_these: None,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for slug in four:
        promote(services, slug, [ABLATION])

    ticked = tick("propagation_sensor", instance, services)

    assert set(ticked.runs) == set(four)
    assert len(set(ticked.runs.values())) == 4
    # a tick that died after its first launches asks again by the same keys, which start nothing twice
    assert tick("propagation_sensor", instance, services).runs == ticked.runs

    revise(services, four[0], "mem-0001", detail="prima modifica")
    once = tick("propagation_sensor", instance, services).runs
    revise(services, four[0], "mem-0001", detail="seconda modifica")
    twice = tick("propagation_sensor", instance, services).runs
    assert len({ticked.runs[four[0]], once[four[0]], twice[four[0]]}) == 3
    assert {slug: twice[slug] for slug in four[1:]} == {slug: ticked.runs[slug] for slug in four[1:]}

    retire_workspace(services, four[3])
    monkeypatch.setattr(sensors, "BATCH", 2)
    bounded = tick("propagation_sensor", instance, services).runs
    assert len(bounded) == 2
    assert four[3] not in bounded
    for slug in bounded:
        assert drain(services, slug).settled
    assert set(tick("propagation_sensor", instance, services).runs) == set(four[:3]) - set(bounded)


def test_workspaces_that_stay_due_keep_no_other_waiting(
    services: Services,
    four: list[str],
    only_these: None,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sensors, "BATCH", 1)
    for slug in four:
        promote(services, slug, [ABLATION])

    cursor, asked = None, []
    for _ in range(5):
        ticked = tick("propagation_sensor", instance, services, cursor)
        cursor = ticked.cursor
        asked += ticked.runs

    assert asked == [*sorted(four), min(four)]


def test_what_is_under_way_or_was_tried_is_asked_for_again_only_later(
    services: Services, four: list[str], only_these: None, instance: dg.DagsterInstance
) -> None:
    slug = four[0]
    promote(services, slug, [ABLATION])
    drain(services, slug)
    revise(services, slug, "mem-0001", detail="un testo da calcolare")
    first = tick("propagation_sensor", instance, services).runs[slug]
    job = defs.resolve_job_def("propagate_job")
    run = instance.create_run_for_job(job, tags={"dagster/partition": slug}, status=dg.DagsterRunStatus.STARTED)
    assert tick("propagation_sensor", instance, services).runs == {}
    instance.delete_run(run.run_id)

    with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as without_embedder:
        drain(without_embedder, slug)
    assert tick("propagation_sensor", instance, services).runs == {}
    with services.database.transaction(Role.INDEXER, slug) as tx:
        tx.execute("UPDATE propagations SET next_attempt_at = now() WHERE state = 'pending'")
    again = tick("propagation_sensor", instance, services).runs[slug]
    assert again != first
    with services.database.transaction(Role.OWNER, slug) as tx:
        tx.execute("UPDATE propagations SET created_at = created_at - interval '11 minutes'")
    assert tick("propagation_sensor", instance, services).runs[slug] != again


# --- the inbox ---------------------------------------------------------------------------------------------------


def test_a_file_that_came_or_grew_is_read_and_no_other(
    services: Services, four: list[str], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(slug: str, name: str, content: bytes) -> Path:
        file = services.settings.inbox_path / slug / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    content = b'{"seq": 1, ' + line(**ABLATION).removeprefix(b"{") + b"\n"
    for slug in four[:3]:
        write(slug, "s1.jsonl", content)
    write(four[3], "notes.txt", b"no ledger")

    first = tick("inbox_sensor", instance, services)

    assert set(first.runs) == set(four[:3])
    assert tick("inbox_sensor", instance, services).runs == first.runs, "a repeated tick asks by the same keys"
    rest = tick("inbox_sensor", instance, services, first.cursor)
    assert (rest.runs, rest.cursor) == ({}, first.cursor)
    write(four[1], "s1.jsonl", content + content.replace(b'"seq": 1', b'"seq": 2'))
    grown = tick("inbox_sensor", instance, services, rest.cursor)
    assert set(grown.runs) == {four[1]}
    assert grown.runs[four[1]] != first.runs[four[1]]
    retire_workspace(services, four[0])
    write(four[0], "s2.jsonl", content)
    assert tick("inbox_sensor", instance, services, grown.cursor).runs == {}

    monkeypatch.setattr(sensors, "BATCH", 2)
    restore_workspace(services, four[0])
    bounded = tick("inbox_sensor", instance, services)
    left = tick("inbox_sensor", instance, services, bounded.cursor)
    assert (len(bounded.runs), len(left.runs)) == (2, 1)
    assert {*bounded.runs, *left.runs} == set(four[:3])


def test_a_file_that_was_read_in_vain_is_asked_for_again_though_it_is_the_same(
    services: Services, four: list[str], instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    slug = four[0]
    file = services.settings.inbox_path / slug / "s1.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(line(**ABLATION) + b"\n")
    first = tick("inbox_sensor", instance, services)
    (request,) = first.data.run_requests
    job = defs.resolve_job_def("ledger_job")

    def run(status: dg.DagsterRunStatus, tags: dict[str, str]) -> str:
        return instance.create_run_for_job(job, tags=tags, status=status).run_id

    def again() -> dict[str, str]:
        return tick("inbox_sensor", instance, services, first.cursor).runs

    failed = run(dg.DagsterRunStatus.FAILURE, request.tags)
    assert again() == {}, "its retries come first"
    monkeypatch.setattr(sensors, "LATE_SECONDS", 0)
    assert again() == {slug: f"{first.runs[slug]}:{failed}"}
    run(dg.DagsterRunStatus.FAILURE, {**request.tags, "dagster/partition": four[1]})
    assert set(again()) == {slug}, "a folder as it was before is not asked for"
    retried = run(dg.DagsterRunStatus.STARTED, request.tags)
    assert again() == {}
    instance.delete_run(retried)
    run(dg.DagsterRunStatus.SUCCESS, request.tags)
    assert again() == {}


# --- what changed outside a run ----------------------------------------------------------------------------------


def _left(ticked: Tick, instance: dg.DagsterInstance) -> list[str]:
    """Workspaces that a tick left, but for those of other tests, which wait for a partition here."""
    partitions = instance.get_dynamic_partitions("workspace")
    return [slug for slug in json.loads(ticked.cursor or "{}")["waiting"] if slug in partitions]


def _settle(instance: dg.DagsterInstance, services: Services, cursor: str | None) -> Tick:
    """Tick until nothing is left, as the daemon does."""
    ticked = tick("changes_sensor", instance, services, cursor)
    for _ in range(20):
        if not _left(ticked, instance):
            return ticked
        ticked = tick("changes_sensor", instance, services, ticked.cursor)
    raise AssertionError(ticked)


def test_a_promotion_an_edit_and_a_drain_elsewhere_are_shown_by_the_sensor(
    services: Services, four: list[str], instance: dg.DagsterInstance
) -> None:
    first, second = four[:2]
    start = _settle(instance, services, None)
    promote(services, first, [ABLATION])
    drain(services, first)
    append(services, second, "s1", [line(**READMISSION)])

    shown = _settle(instance, services, start.cursor)

    assert statuses(instance, first) == {}
    assert metadata(instance, "session_memories")["pending"] == 1, "the newest report is of the other workspace"
    before = data_version(instance, "memory_cards")
    events = len(instance.fetch_materializations(dg.AssetKey("memory_cards"), limit=1000).records)
    assert "0 assets of 0 workspaces" in _settle(instance, services, shown.cursor).told
    # a tick that died before its cursor was kept is repeated, and reports nothing twice
    _settle(instance, services, start.cursor)
    assert len(instance.fetch_materializations(dg.AssetKey("memory_cards"), limit=1000).records) == events

    revise(services, first, "mem-0001", detail="una modifica fatta altrove")
    edited = _settle(instance, services, shown.cursor)
    assert data_version(instance, "memory_cards") != before
    assert statuses(instance, first) == {"dense_embeddings": "stale", "sparse_embeddings": "stale"}
    drain(services, first)
    _settle(instance, services, edited.cursor)
    assert statuses(instance, first) == {}


def test_what_a_transaction_that_still_runs_writes_is_not_passed_by(
    services: Services, four: list[str], instance: dg.DagsterInstance
) -> None:
    slow, quick = four[:2]
    start = _settle(instance, services, None)
    with services.database.transaction(Role.HARNESS, slow) as running:
        running.execute("INSERT INTO sessions (workspace, session_id, door) VALUES (%s, 's1', 'append')", (slow,))
        append(services, quick, "s1", [line(**ABLATION)])
        meanwhile = _settle(instance, services, start.cursor)
        assert "0 assets" in meanwhile.told
    after = _settle(instance, services, meanwhile.cursor)

    assert metadata(instance, "session_ledger")["sessions"] == 1
    told = {
        record.partition_key
        for record in instance.fetch_materializations(dg.AssetKey("session_ledger"), limit=1000).records
    }
    assert {slow, quick} <= told
    assert _left(after, instance) == []


def test_where_the_index_is_down_a_workspace_is_left_for_the_next_tick(
    services: Services, four: list[str], instance: dg.DagsterInstance
) -> None:
    start = _settle(instance, services, None)
    promote(services, four[0], [ABLATION])
    drain(services, four[0])
    with with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as without_index:
        left = tick("changes_sensor", instance, without_index, start.cursor)

    assert _left(left, instance) == [four[0]]
    assert "IndexUnavailable" in left.told
    _settle(instance, services, left.cursor)
    assert statuses(instance, four[0]) == {}


# --- drift -------------------------------------------------------------------------------------------------------


def test_drift_is_found_in_turn_and_asks_for_its_repair(
    services: Services, four: list[str], only_these: None, instance: dg.DagsterInstance
) -> None:
    for slug in four:
        promote(services, slug, [ABLATION])
        drain(services, slug)
    with raw_client(services) as raw:
        drifted = Scene(services, four[3], raw)
        drifted.put(drifted.projection("mem-0001", card_id="mem-9999", point_id=point_id("mem-9999")))
    retire_workspace(services, four[1])

    cursor, runs, before = None, {}, None
    for _ in range(3):
        ticked = tick("drift_sensor", instance, services, cursor)
        before = cursor if ticked.runs else before
        cursor, runs = ticked.cursor, {**runs, **ticked.runs}

    assert set(runs) == {four[3]}
    assert runs[four[3]].startswith(f"drift:{four[3]}:1:")
    assert tick("drift_sensor", instance, services, before).runs == runs
    with services.database.transaction(Role.INDEXER, four[3]) as tx:
        upkeep.raise_epoch(tx, four[3])  # as a repair does: what differs then is another loss
    assert tick("drift_sensor", instance, services, before).runs[four[3]] != runs[four[3]]

    with with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as down:
        assert "could not be compared: IndexUnavailable" in tick("drift_sensor", instance, down, cursor).told


# --- schedules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nightly_consistency", "weekly_evaluation"])
def test_a_schedule_asks_for_a_run_of_each_active_workspace(
    services: Services, four: list[str], instance: dg.DagsterInstance, name: str
) -> None:
    retire_workspace(services, four[2])
    with dg.build_schedule_context(
        instance,
        scheduled_execution_time=datetime(2026, 1, 4, 4, tzinfo=UTC),
        resources={"services": services},
        repository_def=defs.get_repository_def(),
    ) as context:
        ticked = defs.resolve_schedule_def(name).evaluate_tick(context)

    assert {request.tags["dagster/partition"] for request in ticked.run_requests or []} == set(four) - {four[2]}


def test_everything_runs_by_itself() -> None:
    repository = defs.get_repository_def()
    assert {sensor.default_status for sensor in repository.sensor_defs} == {dg.DefaultSensorStatus.RUNNING}
    assert {schedule.default_status for schedule in repository.schedule_defs} == {dg.DefaultScheduleStatus.RUNNING}
