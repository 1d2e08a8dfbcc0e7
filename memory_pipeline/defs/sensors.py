"""Sensors: what keeps Dagster and the projection in step with the registry without anyone asking.

A tick asks one indexed question about all workspaces, does a bounded part of what it finds, and keeps what is left for
the next one in its cursor. The cursor only moves together with the result: a tick that dies half-way is repeated, with
the same run keys, which start nothing twice. A retired workspace is skipped everywhere.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

import json
import time
from collections.abc import Iterable, Mapping
from datetime import datetime

import dagster as dg
from dagster._core.storage.dagster_run import NOT_FINISHED_STATUSES

from memory_pipeline.core.display import counted
from memory_pipeline.core.drift import Remedy
from memory_pipeline.core.errors import IndexUnavailable, MemoryPipelineError, UnknownWorkspace
from memory_pipeline.core.health import LATE_SECONDS
from memory_pipeline.core.workspace import WorkspaceStatus
from memory_pipeline.defs.assets.health import failing_checks
from memory_pipeline.defs.checks import SCANNED, lasting, quick_results
from memory_pipeline.defs.jobs import ledger_job
from memory_pipeline.defs.partitions import WORKSPACE
from memory_pipeline.defs.reporting import Reported, report_checks, report_workspace
from memory_pipeline.defs.upkeep import consistency_job, propagate_job, reconcile_job
from memory_pipeline.operations.arrivals import inbox_marks
from memory_pipeline.operations.consistency import scan_page
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import list_workspaces
from memory_pipeline.store import monitor, upkeep
from memory_pipeline.store.database import Role

BATCH = 20
"""Runs that one tick asks for."""

SCANNED_A_TICK = 3
"""Workspaces of which one tick compares a page."""

PATIENCE_SECONDS = 20.0
"""A tick that reports or compares stops after this, and goes on with the next one."""

_MARK = "memory/inbox"
"""Tag of a run: the mark of the folder as it was when the run was asked for."""

_LOOK_BACK = 500
"""Failed runs that one tick looks at."""

REPAIR_SECONDS = 3600
"""What a repair could not mend is tried again once an hour, and not at every look."""

_RUNNING = dg.DefaultSensorStatus.RUNNING


@dg.sensor(minimum_interval_seconds=30, default_status=_RUNNING)
def workspaces_sensor(
    context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]
) -> dg.SensorResult | dg.SkipReason:
    """Give each new workspace its partition. Workspaces made for an evaluation, and retired ones, get none."""
    known = list_workspaces(services)
    active = {workspace.slug for workspace in known if workspace.status is WorkspaceStatus.ACTIVE}
    missing = sorted(active - _partitions(context))
    if not missing:
        return dg.SkipReason(f"{len(active)} active workspaces of {len(known)}; each has its partition")
    return dg.SensorResult(
        dynamic_partitions_requests=[WORKSPACE.build_add_request(missing)],
        skip_reason=f"{len(missing)} of {len(active)} active workspaces got their partition now; no run is asked for",
    )


@dg.sensor(job=ledger_job, minimum_interval_seconds=30, default_status=_RUNNING)
def inbox_sensor(
    context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]
) -> dg.SensorResult | dg.SkipReason:
    """Read the ledgers of a workspace when a file of its inbox is new or has grown. The cursor is a mark per folder.

    Where the run failed, its retries included, another one follows ten minutes later, though nothing has changed.
    """
    active = {each.slug for each in list_workspaces(services) if each.status is WorkspaceStatus.ACTIVE}
    seen: dict[str, str] = json.loads(context.cursor or "{}")
    marks = inbox_marks(services, sorted(active & _partitions(context)))
    failed = _failed_readings(context.instance, marks)
    changed = [workspace for workspace, mark in marks.items() if seen.get(workspace) != mark]
    asked = list(dict.fromkeys([*changed, *failed]))[:BATCH]
    kept = {workspace: mark for workspace, mark in seen.items() if workspace in marks}
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(
                partition_key=workspace,
                run_key=":".join(["inbox", workspace, marks[workspace], *failed.get(workspace, ())]),
                tags={_MARK: marks[workspace]},
            )
            for workspace in asked
        ],
        cursor=json.dumps({**kept, **{workspace: marks[workspace] for workspace in asked}}, sort_keys=True),
        skip_reason=None if asked else f"nothing new in {len(marks)} folders",
    )


@dg.sensor(job=propagate_job, minimum_interval_seconds=15, default_status=_RUNNING)
def propagation_sensor(
    context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]
) -> dg.SensorResult | dg.SkipReason:
    """Drain each workspace in which something is due, in turn: the cursor is the last one asked for.

    What is due stays due until it is done; where that cannot be, it must not keep the others waiting. The run key
    names the newest change and the tries so far, so that two edits of one card are two runs; and it changes every ten
    minutes, so that a run that died without a trace is not the last one.
    """
    with services.database.transaction(Role.READER, None, via=services.via) as tx:
        due = {each.workspace: f"{each.newest}:{each.attempts}:{_turn(each.oldest)}" for each in monitor.due(tx)}
        late = {each.workspace: f"upkeep:{_turn(each.oldest)}" for each in upkeep.due(tx)}
    waiting = {**late, **due}
    under_way, partitions = _under_way(context.instance, propagate_job.name), _partitions(context)
    last = context.cursor or ""
    able = [each for each in waiting if each in partitions and each not in under_way]
    asked = sorted(able, key=lambda each: (each <= last, each))[:BATCH]
    if not asked:
        waits = counted(len(waiting), "workspace waits", "workspaces wait")
        return dg.SkipReason(f"{waits}, {counted(len(under_way), 'is', 'are')} under way")
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(partition_key=workspace, run_key=f"propagate:{workspace}:{waiting[workspace]}")
            for workspace in asked
        ],
        cursor=asked[-1],
    )


@dg.sensor(job=consistency_job, minimum_interval_seconds=30, default_status=_RUNNING)
def changes_sensor(
    context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]
) -> dg.SensorResult | dg.SkipReason:
    """Show what changed outside a run: promotions, edits and drains, wherever they were made.

    The cursor is a transaction number, and the workspaces that were left for the next tick. Where the index of a
    workspace with failing checks changed, its checks are run again, so that a repair is seen.
    """
    cursor = json.loads(context.cursor or "{}")
    known = {each.slug: each.status for each in list_workspaces(services)}
    with services.database.transaction(Role.READER, None, via=services.via) as tx:
        since = str(cursor.get("since", monitor.BEGINNING))
        anew = since == monitor.BEGINNING or not monitor.has_reached(tx, since)  # else it was restored from a backup
        changes, upto = monitor.changes(tx, monitor.BEGINNING if anew else since)
    written = {change.workspace: "index" in change.parts for change in changes}
    waiting = list(dict.fromkeys([*cursor.get("waiting", ()), *written, *(known if anew else ())]))
    partitions = _partitions(context)
    shown = [each for each in waiting if each in partitions]
    early = [each for each in waiting if known.get(each) is WorkspaceStatus.ACTIVE and each not in partitions]
    left, reported, problems = _report(context, services, shown, written)
    done = [workspace for workspace in shown if workspace not in left]
    left = [*left, *early]
    failing = failing_checks(context.instance) if any(written.values()) else {}
    again = [each for each in done if written.get(each) and set(failing.get(each, ())) & SCANNED.keys()][:BATCH]
    told = f"{counted(reported, 'asset')} of {counted(len(done), 'workspace')} reported, {len(left)} left"
    return dg.SensorResult(
        run_requests=[dg.RunRequest(partition_key=each, run_key=f"recheck:{each}:{upto}") for each in again],
        cursor=json.dumps({"since": upto, "waiting": left}),
        skip_reason=None if again else "; ".join([told, *problems]),
    )


@dg.sensor(job=reconcile_job, minimum_interval_seconds=60, default_status=_RUNNING)
def drift_sensor(
    context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]
) -> dg.SensorResult | dg.SkipReason:
    """Compare a page of a few workspaces a tick, in turn, and have mended what is derived and differs.

    The cursor is the workspace and the page at which the next tick goes on.
    """
    cursor = json.loads(context.cursor or "{}")
    active = {each.slug for each in list_workspaces(services) if each.status is WorkspaceStatus.ACTIVE}
    known = sorted(active & _partitions(context))
    if not known:
        return dg.SkipReason("no workspace has a partition yet")
    at, page = cursor.get("workspace", ""), cursor.get("page")
    asked: dict[str, str] = {}
    looked_at, unseen, started = 0, list[str](), time.monotonic()
    for _ in range(min(SCANNED_A_TICK, len(known))):
        workspace = next((each for each in known if each > at or (page and each == at)), known[0])
        try:
            scanned = scan_page(services, workspace, page if workspace == at else None)
        except MemoryPipelineError as error:  # told, and looked at again in the next round: the others come first
            unseen.append(f"{workspace} could not be compared: {error.name}: {error.message}")
            context.log.warning(unseen[-1])
            at, page = workspace, None
            continue
        looked_at += 1
        if derived := sum(finding.remedy is not Remedy.PROPOSE for finding in scanned.findings):
            asked[workspace] = f"drift:{workspace}:{derived}:{_written(services, workspace)}:{_hour()}"
        at, page = workspace, scanned.next_cursor
        if time.monotonic() - started > PATIENCE_SECONDS:
            break
    return dg.SensorResult(
        run_requests=[dg.RunRequest(partition_key=each, run_key=key) for each, key in asked.items()],
        cursor=json.dumps({"workspace": at, "page": page}),
        skip_reason=None
        if asked
        else "; ".join([f"{looked_at} of {counted(len(known), 'workspace')} looked at, none of them differs", *unseen]),
    )


SENSORS = [workspaces_sensor, inbox_sensor, propagation_sensor, changes_sensor, drift_sensor]


def _report(
    context: dg.SensorEvaluationContext, services: Services, waiting: Iterable[str], indexed: Mapping[str, bool]
) -> tuple[list[str], int, list[str]]:
    """Report workspaces until the tick's time is up: those left, how many assets were reported, what went wrong."""
    left: list[str] = []
    problems: list[str] = []
    reported, deadline = 0, time.monotonic() + PATIENCE_SECONDS
    for workspace in waiting:
        if time.monotonic() > deadline:
            left.append(workspace)
            continue
        try:
            told = report_workspace(context.instance, services, workspace)
            if indexed.get(workspace) and not told.problem:
                results = quick_results(context.instance, services, workspace)
                report_checks(context.instance, workspace, lasting(results))
        except UnknownWorkspace:  # purged since
            continue
        except IndexUnavailable as error:
            told = Reported((), f"{error.name}: {error.message}")
        if told.problem:
            left.append(workspace)
            problems.append(f"{workspace}: {told.problem}")
        reported += len(told.assets)
    return left, reported, problems


def _written(services: Services, workspace: str) -> int:
    """How often the index was written to: what is lost again after a repair is another loss."""
    with services.database.transaction(Role.INDEXER, workspace, via=services.via) as tx:
        epoch = upkeep.epoch(tx, workspace)
    return epoch.counter if epoch else 0


def _hour() -> int:
    return int(time.time() // REPAIR_SECONDS)


def _partitions(context: dg.SensorEvaluationContext) -> set[str]:
    return set(context.instance.get_dynamic_partitions(str(WORKSPACE.name)))


def _under_way(instance: dg.DagsterInstance, job: str) -> set[str]:
    """Workspaces for which a run of this job is queued or runs."""
    runs = instance.get_runs(dg.RunsFilter(job_name=job, statuses=list(NOT_FINISHED_STATUSES)))
    return {run.tags["dagster/partition"] for run in runs if "dagster/partition" in run.tags}


def _failed_readings(instance: dg.DagsterInstance, marks: Mapping[str, str]) -> dict[str, tuple[str]]:
    """Workspaces whose inbox, as it is now, was last read in vain, ten minutes ago or more; and the run that failed."""
    if not marks:
        return {}
    in_vain = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
    runs = instance.get_runs(
        dg.RunsFilter(job_name=ledger_job.name, tags={_MARK: list(marks.values())}, statuses=in_vain), limit=_LOOK_BACK
    )
    found = {}
    for workspace, mark in dict.fromkeys((run.tags["dagster/partition"], run.tags[_MARK]) for run in runs):
        last = dg.RunsFilter(job_name=ledger_job.name, tags={_MARK: mark, "dagster/partition": workspace})
        (record,) = instance.get_run_records(last, limit=1)
        waited = time.time() - (record.end_time or record.update_timestamp.timestamp())
        if marks.get(workspace) == mark and record.dagster_run.status in in_vain and waited >= LATE_SECONDS:
            found[workspace] = (record.dagster_run.run_id,)
    return found


def _turn(since: datetime) -> int:
    """Counts up every ten minutes that something has been waiting."""
    return int(max(0.0, time.time() - since.timestamp()) // LATE_SECONDS)
