"""The event log as the database that it is, for what Dagster 1.13 offers no other way to."""

from __future__ import annotations

import dagster as dg
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.legacy_storage import LegacyEventLogStorage

RUNLESS = ""
"""The run of what was reported without one."""


def sql_storage(instance: dg.DagsterInstance) -> SqlEventLogStorage:
    """The storage itself."""
    storage = instance.event_log_storage
    if isinstance(storage, LegacyEventLogStorage):  # so the one `storage:` block of dagster.yaml is wrapped
        storage = storage._storage.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        raise TypeError(f"the event log {type(storage).__name__} is not kept in SQL")
    return storage


def forget_runless_result(instance: dg.DagsterInstance, key: dg.AssetCheckKey, partition: str) -> None:
    """Make room for another result of a check without a run.

    The table of results has one row per check, run and partition, and all that have no run share one: a second result
    is refused (1.13.27). The event of the first one stays in the log.
    """
    results = AssetCheckExecutionsTable.c
    with sql_storage(instance).index_connection() as connection:
        connection.execute(
            AssetCheckExecutionsTable.delete().where(
                results.asset_key == key.asset_key.to_string(),
                results.check_name == key.name,
                results.run_id == RUNLESS,
                results.partition == partition,
            )
        )
