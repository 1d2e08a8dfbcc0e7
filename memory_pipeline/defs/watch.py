"""Sensors that watch: how all workspaces are, and which check has started to fail."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

import dagster as dg

from memory_pipeline.core import health as rules
from memory_pipeline.defs.assets.health import failing_checks, health_page, sum_up, workspace_health
from memory_pipeline.defs.assets.index import memory_collection
from memory_pipeline.defs.checks import told
from memory_pipeline.defs.metadata import Status
from memory_pipeline.defs.reporting import CODE_VERSION, DATA_VERSION, report_checks
from memory_pipeline.operations.alerts import Alert, is_anyone_told, tell
from memory_pipeline.operations.health import WorkspaceHealth, measure_health
from memory_pipeline.operations.services import Services

HOURLY_SECONDS = 3600
EVENTS = 500
"""Results of checks that one tick looks at."""

TOLD = 20
"""Workspaces of which one tick tells that they fell ill or are well again."""

_RUNNING = dg.DefaultSensorStatus.RUNNING


@dg.sensor(minimum_interval_seconds=60, default_status=_RUNNING)
def health_sensor(
    context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]
) -> dg.SensorResult | dg.SkipReason:
    """Tell how all workspaces are, whenever that changes and once an hour, without a run.

    Where a workspace falls ill or is well again, its own checks on age are told with it: a backlog grows old although
    nothing runs.
    """
    cursor = json.loads(context.cursor or "{}")
    health, failing = measure_health(services), failing_checks(context.instance)
    summary = sum_up(health, failing)
    unwell = {each.extent.workspace for each in health.workspaces if each.ailments}
    turned = sorted(unwell ^ set(cursor.get("unwell", ())))[:TOLD]
    for workspace in turned:
        if each := health.by_slug.get(workspace):
            report_checks(context.instance, workspace, _ages(each))
    state = {
        "version": f"{health.data_version}:{summary.description}",
        "hour": int(time.time() // HOURLY_SECONDS),
    }
    if all(cursor.get(name) == value for name, value in state.items()) and not turned:
        return dg.SkipReason(f"as before: {summary.description}")
    page = health_page(health, failing)
    context.instance.report_runless_asset_event(
        dg.AssetMaterialization(
            asset_key=workspace_health.key,
            metadata={"status": Status.REPORTED.value, **page.figures, "preview": page.preview},
            tags={DATA_VERSION: page.data_version, CODE_VERSION: "1"},
        )
    )
    report_checks(context.instance, None, [summary])
    told_now = set(cursor.get("unwell", ())) ^ set(turned)
    return dg.SensorResult(cursor=json.dumps({**state, "unwell": sorted(told_now)}), skip_reason=summary.description)


@dg.sensor(minimum_interval_seconds=30, default_status=_RUNNING)
def alerts_sensor(
    context: dg.SensorEvaluationContext, services: dg.ResourceParam[Services]
) -> dg.SensorResult | dg.SkipReason:
    """Tell people when a check starts to fail, and not again until it has passed in between.

    What MEMORY_ALERT_COMMAND and MEMORY_ALERT_WEBHOOK name is told all of a tick at once; where that fails, so does the
    tick, and the next one tells it again. The cursor: the last result looked at, and which checks fail.
    """
    storage = context.instance.event_log_storage
    if not context.cursor:  # what failed before anybody watched is on the page of every check
        after = storage.get_maximum_record_id() or 0
        return dg.SensorResult(cursor=_Watched(after, ()).dump(), skip_reason="from now on, checks are watched")
    watched = _Watched.load(context.cursor)
    results = _results(context.instance, watched.after)
    if not results:
        return dg.SkipReason(f"no new results; {len(watched.failing)} checks fail or warn")
    started, failing = _started(results, watched.failing)
    if started and is_anyone_told(services.settings):
        tell(services.settings, started)
    return dg.SensorResult(
        cursor=_Watched(results[-1].storage_id, tuple(sorted(failing))).dump(),
        skip_reason=f"{len(results)} results, {len(started)} checks started to fail, {len(failing)} fail or warn",
    )


SENSORS = [health_sensor, alerts_sensor]


class _Watched(NamedTuple):
    """The cursor: the last result that was looked at, and the checks that failed by then, as short digests."""

    after: int
    failing: tuple[str, ...]

    def dump(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def load(cls, cursor: str) -> "_Watched":
        found = json.loads(cursor)
        return cls(found["after"], tuple(found["failing"]))


class _Result(NamedTuple):
    """One result of a check, as the event log has it."""

    storage_id: int
    evaluation: dg.AssetCheckEvaluation
    run_id: str
    timestamp: float

    @property
    def key(self) -> str:
        """Stands for the check in its partition."""
        evaluation = self.evaluation
        name = f"{evaluation.asset_key.to_user_string()}:{evaluation.check_name}:{evaluation.partition or ''}"
        return sha256(name.encode()).hexdigest()[:12]


def _results(instance: dg.DagsterInstance, after: int) -> list[_Result]:
    """The results after a storage id, oldest first."""
    records = instance.event_log_storage.get_event_records(
        dg.EventRecordsFilter(event_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION, after_cursor=after),
        limit=EVENTS,
        ascending=True,
    )
    return [
        _Result(record.storage_id, event.asset_check_evaluation_data, record.run_id, record.timestamp)
        for record in records
        if (event := record.event_log_entry.dagster_event) is not None
    ]


def _started(results: Iterable[_Result], failing: Iterable[str]) -> tuple[list[Alert], set[str]]:
    """Checks that did not fail before and do after these results, each once; and all that fail then."""
    before, now = set(failing), set(failing)
    newest: dict[str, _Result] = {}
    for result in results:
        (now.discard if result.evaluation.passed else now.add)(result.key)
        newest[result.key] = result
    return [_alert(result) for key, result in newest.items() if key in now - before], now


def _alert(result: _Result) -> Alert:
    evaluation = result.evaluation
    return Alert(
        asset=evaluation.asset_key.to_user_string(),
        check=evaluation.check_name,
        workspace=evaluation.partition,
        severity=evaluation.severity.value,
        description=evaluation.description or "",
        run=result.run_id,
        at=datetime.fromtimestamp(result.timestamp, UTC),
    )


def _ages(each: WorkspaceHealth) -> list[dg.AssetCheckResult]:
    """The checks on age of one workspace, by the same rules as in a run, over the figures of the glance."""
    extent, now = each.extent, datetime.now(UTC)
    verdicts = {
        "index_is_fresh": rules.freshness(extent if extent.serving else None, now),
        "propagation_flows": rules.backlog(extent.pending, extent.parked, extent.oldest_pending, now),
    }
    return [
        told(verdict)._replace(asset_key=memory_collection.key, check_name=name) for name, verdict in verdicts.items()
    ]
