"""Ticking sensors by hand on the real registry."""

from __future__ import annotations

from typing import Any, NamedTuple

import dagster as dg

from memory_pipeline.definitions import defs
from memory_pipeline.operations.services import Services


class Tick(NamedTuple):
    """What a tick came to: the runs that it asks for, by workspace, its next cursor, and the reason that it gives."""

    runs: dict[str, str]
    cursor: str | None
    told: str
    data: Any


def tick(name: str, instance: dg.DagsterInstance, services: Services, cursor: str | None = None) -> Tick:
    """Evaluate a sensor once. Nothing is launched."""
    with dg.build_sensor_context(
        instance,
        cursor=cursor,
        resources={"services": services},
        repository_def=defs.get_repository_def(),
        instance_ref=instance.get_ref() if instance.is_persistent else None,
    ) as context:
        data = defs.resolve_sensor_def(name).evaluate_tick(context)
    runs = {request.tags["dagster/partition"]: request.run_key or "" for request in data.run_requests or []}
    assert len(runs) == len(data.run_requests or [])
    return Tick(runs, data.cursor, data.skip_message or "", data)
