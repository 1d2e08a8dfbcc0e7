"""The sensors, ticked by hand on the real registry."""

from __future__ import annotations

import dagster as dg
import pytest

from memory_pipeline.core.errors import StoreUnavailable
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.definitions import defs
from memory_pipeline.operations.services import Services
from memory_pipeline.store import workspaces
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import closed_port, with_settings


def _tick(instance: dg.DagsterInstance, services: Services) -> tuple[set[str], str]:
    """Partitions that a tick asks for, which are then added, and the reason that it gives."""
    with dg.build_sensor_context(instance, resources={"services": services}) as context:
        tick = defs.resolve_sensor_def("workspaces_sensor").evaluate_tick(context)
    assert not tick.run_requests
    added = {key for request in tick.dynamic_partitions_requests or [] for key in request.partition_keys}
    instance.add_dynamic_partitions("workspace", sorted(added))
    return added, tick.skip_message or ""


def _scratch(services: Services) -> str:
    workspace = Workspace(slug="t-scratch", title="Evaluation", language="it", default_database="cardio")
    with services.database.transaction(Role.OWNER, workspace.slug) as tx:
        if workspace.slug not in {state.slug for state in workspaces.list_states(tx, scratch=True)}:
            workspaces.create(tx, workspace, scratch=True)
    return workspace.slug


def test_each_active_workspace_gets_its_partition_once(
    services: Services, make_workspace: MakeWorkspace, instance: dg.DagsterInstance
) -> None:
    first, retired, scratch = make_workspace().slug, make_workspace().slug, _scratch(services)
    with services.database.transaction(Role.OWNER, retired) as tx:
        tx.execute("UPDATE workspaces SET status = 'retired' WHERE workspace = %s", (retired,))

    added, reason = _tick(instance, services)

    assert first in added
    assert not added & {retired, scratch}
    assert f"{len(added)} of {len(added)} active workspaces" in reason
    assert _tick(instance, services) == (set(), reason_of_rest(services, len(added)))

    later = make_workspace().slug
    assert _tick(instance, services)[0] == {later}
    assert retired not in instance.get_dynamic_partitions("workspace")


def reason_of_rest(services: Services, active: int) -> str:
    """What a tick with nothing to do says."""
    with services.database.transaction(Role.READER, None) as tx:
        known = len(workspaces.list_states(tx))
    return f"{active} active workspaces of {known}; each has its partition"


def test_a_registry_that_is_down_fails_the_tick_by_its_name(services: Services, instance: dg.DagsterInstance) -> None:
    with (
        with_settings(services, postgres_port=closed_port()) as without_store,
        pytest.raises(StoreUnavailable),
    ):
        _tick(instance, without_store)
