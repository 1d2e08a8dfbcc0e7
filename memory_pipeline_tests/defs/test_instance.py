"""The instance of dagster.yaml, on the real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg
import pytest
from dagster._core.run_coordinator import QueuedRunCoordinator
from dagster._core.scheduler.instigation import InstigatorType

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.definitions import defs
from memory_pipeline.defs.running import materialize_workspace
from memory_pipeline.harness.control_room import dagster_instance
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings
from memory_pipeline.store.bootstrap import DAGSTER_ROLE
from memory_pipeline_tests.flows import ABLATION, promote

pytestmark = pytest.mark.embedded  # the login of Dagster's own database is made by its administrator


@pytest.fixture
def kept(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """The instance that the UI shows."""
    for name in ("DAGSTER_HOME", "MEMORY_STATE", "MEMORY_DAGSTER_PG_URL"):
        monkeypatch.setenv(name, "")  # given back when the test ends
    with dagster_instance(settings) as instance:
        yield instance


def test_a_run_is_kept_for_the_ui(services: Services, workspace: Workspace, kept: dg.DagsterInstance) -> None:
    promote(services, workspace.slug, [ABLATION])

    run = materialize_workspace(defs, kept, workspace.slug)

    found = kept.get_run_by_id(run.run_id)
    assert found is not None
    assert found.status is dg.DagsterRunStatus.SUCCESS
    assert found.tags["dagster/partition"] == workspace.slug
    assert workspace.slug in kept.get_dynamic_partitions("workspace")
    assert kept.get_materialized_partitions(dg.AssetKey("memory_collection")) >= {workspace.slug}
    secrets = [services.settings.secret(name).get_secret_value() for name in ("memory_reviewer", DAGSTER_ROLE)]
    written = repr(kept.all_logs(run.run_id)) + repr(found)
    assert not [secret for secret in secrets if secret in written]


def test_the_instance_keeps_to_its_limits_and_tells_no_secret(settings: Settings, kept: dg.DagsterInstance) -> None:
    assert not kept.telemetry_enabled
    assert kept.run_monitoring_enabled
    assert (kept.run_retries_enabled, kept.run_retries_max_retries) == (True, 2)
    assert not kept.run_retries_retry_on_asset_or_op_failure
    assert isinstance(kept.run_coordinator, QueuedRunCoordinator)
    queue = kept.get_concurrency_config().run_queue_config
    assert queue is not None
    assert queue.tag_concurrency_limits == [
        {"key": "dagster/partition", "value": {"applyLimitPerUniqueValue": True}, "limit": 1}
    ]
    assert kept.get_settings("sensors") == {"use_threads": True, "num_workers": 4}
    assert kept.get_settings("schedules") == {"use_threads": True, "num_workers": 2}
    ticks = kept.get_tick_retention_settings(InstigatorType.SENSOR)
    assert {status.value: days for status, days in ticks.items()} == {
        "SKIPPED": 3,
        "STARTED": 7,
        "SUCCESS": 30,
        "FAILURE": 90,
    }
    assert settings.secret(DAGSTER_ROLE).get_secret_value() not in kept.info_str()
