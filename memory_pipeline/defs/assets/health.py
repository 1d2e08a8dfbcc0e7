"""All workspaces at a glance: one asset without partitions, and the check that sums all others up."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

from collections import defaultdict
from collections.abc import Mapping, Sequence

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from memory_pipeline.core.display import counted
from memory_pipeline.defs.checks import CHECKS, WARNINGS
from memory_pipeline.defs.failures import RETRY, named_failures
from memory_pipeline.defs.metadata import Page, Status, table
from memory_pipeline.operations.health import Health, measure_health
from memory_pipeline.operations.services import Services

SHOWN = 50
"""Workspaces in a table: the unwell ones come first."""

Failing = Mapping[str, Sequence[str]]
"""By workspace, the checks whose newest result failed."""


@dg.asset(
    kinds={"postgres"},
    code_version="1",
    metadata={"docs": dg.MetadataValue.path("docs/operations.md")},
    tags={"layer": "derived"},
    retry_policy=RETRY,
)
def workspace_health(
    context: dg.AssetExecutionContext, services: dg.ResourceParam[Services]
) -> dg.MaterializeResult[None]:
    """Every workspace at a glance. One row is one workspace: what it holds, what waits, and what is wrong with it.

    Measures only, with one query over counts and ages; a sensor tells it anew whenever it changes.
    """
    with named_failures():
        return health_page(measure_health(services), failing_checks(context.instance)).result(Status.DONE)


@dg.asset_check(asset=workspace_health)
def every_workspace_is_well(
    context: dg.AssetCheckExecutionContext, services: dg.ResourceParam[Services]
) -> dg.AssetCheckResult:
    """No workspace has anything wrong with it: its index follows its cards, and no check of it fails.

    A check that only warns is no ailment. A retired workspace is always well.
    """
    with named_failures():
        return sum_up(measure_health(services), failing_checks(context.instance))


def failing_checks(instance: dg.DagsterInstance) -> Failing:
    """By workspace, the checks whose newest result failed; those that only warn are left out."""
    keys = [key for check in CHECKS for key in check.check_keys if key.name not in WARNINGS]
    found: dict[str, list[str]] = defaultdict(list)
    for info in instance.event_log_storage.get_asset_check_partition_info(keys):
        if info.partition_key and info.latest_execution_status is AssetCheckExecutionRecordStatus.FAILED:
            found[info.partition_key].append(info.check_key.name)
    return found


def health_page(health: Health, failing: Failing) -> Page:
    """One row per workspace, the unwell ones first."""
    active = [each for each in health.workspaces if each.extent.status != "retired"]
    rows = sorted(health.workspaces, key=lambda each: not _wrong(each.extent.workspace, health, failing))
    return Page(
        health.data_version,
        {
            "dagster/row_count": len(health.workspaces),
            "workspaces": len(health.workspaces),
            "unwell": len(_unwell(health, failing)),
            "retired": len(health.workspaces) - len(active),
            "cards": sum(each.extent.active for each in active),
            "pending": sum(each.extent.pending for each in active),
            "parked": sum(each.extent.parked for each in active),
            "longest_lag_seconds": round(max((each.lag_seconds for each in active), default=0.0), 1),
        },
        table(
            ("workspace", "how it is", "failing checks", "cards:int", "in the index:int", "pending:int", "parked:int"),
            [
                (
                    each.extent.workspace,
                    each.told,
                    ", ".join(failing.get(each.extent.workspace, ())),
                    each.extent.active,
                    each.extent.current,
                    each.extent.pending,
                    each.extent.parked,
                )
                for each in rows[:SHOWN]
            ],
        ),
    )


def sum_up(health: Health, failing: Failing) -> dg.AssetCheckResult:
    """The result that stands for all workspaces."""
    unwell = _unwell(health, failing)
    named = ", ".join(list(unwell)[:5]) + (f" and {len(unwell) - 5} more" if len(unwell) > 5 else "")
    return dg.AssetCheckResult(
        asset_key=workspace_health.key,
        check_name="every_workspace_is_well",
        passed=not unwell,
        description=f"not well: {named}" if unwell else f"{counted(len(health.workspaces), 'workspace')}, all well",
        metadata={
            "unwell": len(unwell),
            "ailments": table(("workspace", "what is wrong"), list(unwell.items())[:SHOWN]),
        },
    )


def _unwell(health: Health, failing: Failing) -> dict[str, str]:
    """What is wrong, by workspace."""
    told = {each.extent.workspace: _wrong(each.extent.workspace, health, failing) for each in health.workspaces}
    return {workspace: wrong for workspace, wrong in told.items() if wrong}


def _wrong(workspace: str, health: Health, failing: Failing) -> str:
    each = health.by_slug[workspace]
    if each.extent.status == "retired":
        return ""
    return "; ".join([*each.ailments, *(f"{check} fails" for check in failing.get(workspace, ()))])
