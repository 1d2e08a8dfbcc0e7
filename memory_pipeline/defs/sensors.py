"""Sensors: what keeps Dagster in step with the registry without anyone asking."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

import dagster as dg

from memory_pipeline.core.workspace import WorkspaceStatus
from memory_pipeline.defs.partitions import WORKSPACE
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.workspaces import list_workspaces


@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def workspaces_sensor(
    context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]
) -> dg.SensorResult | dg.SkipReason:
    """Give each new workspace its partition. Workspaces made for an evaluation, and retired ones, get none."""
    known = list_workspaces(services)
    active = {workspace.slug for workspace in known if workspace.status is WorkspaceStatus.ACTIVE}
    missing = sorted(active - set(context.instance.get_dynamic_partitions(str(WORKSPACE.name))))
    if not missing:
        return dg.SkipReason(f"{len(active)} active workspaces of {len(known)}; each has its partition")
    return dg.SensorResult(
        dynamic_partitions_requests=[WORKSPACE.build_add_request(missing)],
        skip_reason=f"{len(missing)} of {len(active)} active workspaces got their partition now; no run is asked for",
    )
