"""Runs of the definitions on the real stack, in an instance that lives as long as a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dagster as dg
import pytest

from memory_pipeline.definitions import defs
from memory_pipeline.defs.running import WorkspaceRun, materialize_workspace
from memory_pipeline.operations.services import Services

RunJob = Callable[..., Any]
Materialize = Callable[..., WorkspaceRun]
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance in memory."""
    with dg.DagsterInstance.ephemeral() as opened:
        yield opened


@pytest.fixture
def materialize(services: Services, instance: dg.DagsterInstance) -> Materialize:
    """Materialises every asset of a workspace."""

    def run(workspace: str, using: Services = services) -> WorkspaceRun:
        return materialize_workspace(defs, instance, workspace, resources={"services": using})

    return run


@pytest.fixture
def run_job(services: Services, instance: dg.DagsterInstance) -> RunJob:
    """Runs a job of one op with this configuration and returns the op's answer."""

    def run(job: str, op: str, using: Services = services, **config: Any) -> Any:
        outcome = defs.resolve_job_def(job).execute_in_process(
            instance=instance,
            run_config={**QUIET, "ops": {op: {"config": config}}},
            resources={"services": using},
        )
        return outcome.output_for_node(op)

    return run


def metadata(instance: dg.DagsterInstance, asset: str) -> dict[str, Any]:
    """Values of the newest materialisation of an asset; a table as a list of dicts."""
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    assert event is not None
    assert event.asset_materialization is not None
    return values(event.asset_materialization.metadata)


def values(entries: Mapping[str, dg.MetadataValue[Any]]) -> dict[str, Any]:
    """Plain values of metadata."""
    return {
        name: [dict(record.data) for record in value.records]
        if isinstance(value, dg.TableMetadataValue)
        else value.value
        for name, value in entries.items()
    }


def data_version(instance: dg.DagsterInstance, asset: str) -> str:
    """The version with which an asset was last reported."""
    event = instance.get_latest_materialization_event(dg.AssetKey(asset))
    assert event is not None
    assert event.asset_materialization is not None
    assert event.asset_materialization.tags is not None
    return event.asset_materialization.tags["dagster/data_version"]
