"""What workers do: the operations of the sensors and of the command line, with answers that can be sent."""

from __future__ import annotations

from memory_pipeline.operations.propagate import DrainReport, drain
from memory_pipeline.operations.rebuild import RebuildReport, rebuild
from memory_pipeline.operations.services import Services


def drain_job(services: Services, workspace: str) -> DrainReport:
    """What the sensor asks for."""
    return drain(services, workspace)


def rebuild_job(services: Services, workspace: str) -> RebuildReport:
    """What a person asks for after a change of model."""
    return rebuild(services, workspace)
