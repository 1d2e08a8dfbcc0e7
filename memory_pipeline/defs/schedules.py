"""Schedules: what is worth its time once a night or once a week."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

from collections.abc import Iterator

import dagster as dg

from memory_pipeline.core.workspace import WorkspaceStatus
from memory_pipeline.defs.jobs import evaluate_job
from memory_pipeline.defs.partitions import WORKSPACE
from memory_pipeline.defs.upkeep import consistency_job, maintenance_job
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import list_workspaces

_RUNNING = dg.DefaultScheduleStatus.RUNNING


@dg.schedule(job=consistency_job, cron_schedule="0 3 * * *", default_status=_RUNNING)
def nightly_consistency(
    context: dg.ScheduleEvaluationContext, services: dg.ResourceParam[Services]
) -> Iterator[dg.RunRequest]:
    """Every night, run every check of every active workspace: the sensors look at a page at a time, this at all."""
    yield from _each_workspace(context, services)


@dg.schedule(job=maintenance_job, cron_schedule="30 2 * * *", default_status=_RUNNING)
def nightly_maintenance(_: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Every night, forget old runs, events and settled rows, as the job's settings say."""
    return dg.RunRequest()


@dg.schedule(job=evaluate_job, cron_schedule="0 4 * * 0", default_status=_RUNNING)
def weekly_evaluation(
    context: dg.ScheduleEvaluationContext, services: dg.ResourceParam[Services]
) -> Iterator[dg.RunRequest]:
    """Every Sunday, measure how well recall works in every active workspace."""
    yield from _each_workspace(context, services)


SCHEDULES = [nightly_consistency, nightly_maintenance, weekly_evaluation]


def _each_workspace(context: dg.ScheduleEvaluationContext, services: Services) -> Iterator[dg.RunRequest]:
    """One run per active workspace that has a partition, each at most once a tick."""
    partitions = set(context.instance.get_dynamic_partitions(str(WORKSPACE.name)))
    for workspace in list_workspaces(services):
        if workspace.status is WorkspaceStatus.ACTIVE and workspace.slug in partitions:
            yield dg.RunRequest(partition_key=workspace.slug, run_key=workspace.slug)
