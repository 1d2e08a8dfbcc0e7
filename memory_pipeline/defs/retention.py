"""What the event log may forget. Dagster 1.13 keeps runs and events for ever; its own retention is for ticks alone.

Never forgotten is what the graph shows today: the newest materialisation of each asset in each partition, the events on
which those rest, for without them Dagster takes them for stale, and the newest result of each check.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dagster as dg
import sqlalchemy as db
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)

from memory_pipeline.defs.event_log import RUNLESS, sql_storage

_STARTED_BY = ("dagster/sensor_name", "dagster/schedule_name")
_BATCH = 1000


def forget_runs(instance: dg.DagsterInstance, *, days: int, failed_days: int) -> int:
    """Delete finished runs that a sensor or a schedule started, with all their events; returns how many.

    Runs of people stay, and so does a run whose events the graph still shows.
    """
    log = SqlEventLogStorageTable.c
    with sql_storage(instance).index_connection() as connection:
        shown = {row[0] for row in connection.execute(db.select(log.run_id).where(log.id.in_(_kept())).distinct())}
    forgotten = 0
    for status, kept in (
        (dg.DagsterRunStatus.SUCCESS, days),
        (dg.DagsterRunStatus.FAILURE, failed_days),
        (dg.DagsterRunStatus.CANCELED, failed_days),
    ):
        for run in instance.get_runs(dg.RunsFilter(statuses=[status], created_before=_before(kept))):
            if run.run_id not in shown and any(tag in run.tags for tag in _STARTED_BY):
                instance.delete_run(run.run_id)
                forgotten += 1
    return forgotten


def forget_events(instance: dg.DagsterInstance, *, days: int) -> int:
    """Delete events of assets and checks that were reported without a run; returns how many."""
    log, checks, tags = SqlEventLogStorageTable.c, AssetCheckExecutionsTable.c, AssetEventTagsTable.c
    old = db.select(log.id).where(log.run_id == RUNLESS, log.timestamp < _before(days).replace(tzinfo=None))
    last = forgotten = 0
    with sql_storage(instance).index_connection() as connection:
        kept = {row[0] for row in connection.execute(_kept())}
        while ids := [row[0] for row in connection.execute(old.where(log.id > last).order_by(log.id).limit(_BATCH))]:
            last = ids[-1]
            gone = [each for each in ids if each not in kept]
            connection.execute(AssetEventTagsTable.delete().where(tags.event_id.in_(gone)))
            connection.execute(AssetCheckExecutionsTable.delete().where(checks.evaluation_event_storage_id.in_(gone)))
            connection.execute(SqlEventLogStorageTable.delete().where(log.id.in_(gone)))
            forgotten += len(gone)
    return forgotten


def _kept() -> db.CompoundSelect[tuple[int]]:
    """Ids of the events that the graph shows, and of those on which they rest.

    An event rests on the newest one of its input that came before it, so for each newest event the newest earlier one
    of every asset in its partition is kept.
    """
    log, checks = SqlEventLogStorageTable.c, AssetCheckExecutionsTable.c
    materialised = dg.DagsterEventType.ASSET_MATERIALIZATION.value
    newest = (
        db.select(log.asset_key, log.partition, db.func.max(log.id).label("id"))
        .where(log.dagster_event_type == materialised)
        .group_by(log.asset_key, log.partition)
        .subquery()
    )
    earlier = SqlEventLogStorageTable.alias()
    rested_on = (
        db.select(db.func.max(earlier.c.id))
        .join(newest, db.and_(earlier.c.partition == newest.c.partition, earlier.c.id < newest.c.id))
        .where(earlier.c.dagster_event_type == materialised)
        .group_by(earlier.c.asset_key, newest.c.asset_key, newest.c.partition)
    )
    results = db.select(checks.evaluation_event_storage_id).where(
        checks.id.in_(
            db.select(db.func.max(checks.id)).group_by(checks.asset_key, checks.check_name, checks.partition)
        ),
        checks.evaluation_event_storage_id.is_not(None),
    )
    return db.union(db.select(newest.c.id), rested_on, results)


def _before(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)
