"""Jobs that keep the projection equal to the registry, one workspace a run, and one that keeps the control room small.

Their ops change rows outside any asset, so each reports what it changed, and how the checks stand then.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

import contextlib
from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from memory_pipeline.core.errors import IndexBusy, MemoryPipelineError
from memory_pipeline.defs.checks import all_results, quick_results, scan_results
from memory_pipeline.defs.failures import RETRY, named_failures
from memory_pipeline.defs.metadata import Status, table
from memory_pipeline.defs.partitions import WORKSPACE
from memory_pipeline.defs.reporting import report_checks, report_quietly
from memory_pipeline.defs.retention import forget_events, forget_runs
from memory_pipeline.operations.measure import SHOWN, is_retired
from memory_pipeline.operations.propagate import DrainReport, drain
from memory_pipeline.operations.rebuild import rebuild as rebuild_index
from memory_pipeline.operations.reconcile import reconcile as reconcile_stores
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.upkeep import sweep
from memory_pipeline.store import monitor
from memory_pipeline.store.database import Role

WAIT_SECONDS = 30.0
"""How long a run waits for its turn with a workspace that another writer has; then it is tried again."""

_RETIRED = {"status": Status.RETIRED.value}


class MaintenanceConfig(dg.Config):
    """For how long what is only of passing interest is kept, in days."""

    runs: int = Field(default=14, ge=1, description="runs that a sensor or a schedule started, and that succeeded")
    failed_runs: int = Field(default=90, ge=1, description="those of them that did not")
    events: int = Field(default=90, ge=1, description="events of assets and checks, but for the newest of each")
    settled: int = Field(default=30, ge=1, description="settled rows of the outbox")


@dg.op(retry_policy=RETRY)
def propagate(context: dg.OpExecutionContext, services: dg.ResourceParam[Services]) -> dict[str, Any]:
    """Let the index follow every change that is due, and drop what nothing uses any more."""
    workspace = context.partition_key
    with named_failures(), _shown(context, services, workspace):
        if is_retired(services, workspace):
            return _RETIRED
        drained = drain(services, workspace, wait=WAIT_SECONDS)
        if drained.busy:
            raise IndexBusy(workspace)
        _tell(context, drained)
        dropped = sweep(services, workspace)
    return {**drained.model_dump(mode="json"), "dropped": list(dropped)}


@dg.op(retry_policy=RETRY)
def rebuild(context: dg.OpExecutionContext, services: dg.ResourceParam[Services]) -> dict[str, Any]:
    """Build the index anew beside the one that serves, and switch to it once it holds everything."""
    workspace = context.partition_key
    with named_failures(), _shown(context, services, workspace):
        if is_retired(services, workspace):
            return _RETIRED
        built = rebuild_index(services, workspace)
    context.add_output_metadata(
        {
            "collection": built.collection,
            "replaced": built.replaced or "none",
            "cards": built.cards,
            "embedded": built.embedded,
            "replayed": built.replayed,
        }
    )
    return built.model_dump(mode="json")


@dg.op(retry_policy=RETRY)
def reconcile(context: dg.OpExecutionContext, services: dg.ResourceParam[Services]) -> dict[str, Any]:
    """Compare both stores and mend what is derived; what a human decided becomes a proposal."""
    workspace = context.partition_key
    with named_failures(), _shown(context, services, workspace):
        if is_retired(services, workspace):
            return _RETIRED
        mended = reconcile_stores(services, workspace)
        report_checks(context.instance, workspace, scan_results(services, workspace), run=context.run)
    context.add_output_metadata(
        {
            "found": mended.found.total,
            "queued": mended.queued,
            "deleted": mended.deleted,
            "doubtful": mended.doubtful,
            "mended": ", ".join(mended.mended) or "nothing",
            "findings": table(
                ("what", "card", "seen"),
                [(each.kind.value, each.card_id, each.detail) for each in mended.found.findings[:SHOWN]],
            ),
        }
    )
    return mended.model_dump(mode="json")


@dg.op(retry_policy=RETRY)
def check_everything(context: dg.OpExecutionContext, services: dg.ResourceParam[Services]) -> list[str]:
    """Run every check, the comparison of both stores included. Nothing is changed. Returns what does not pass."""
    workspace = context.partition_key
    with named_failures():
        results = all_results(context.instance, services, workspace)
    report_checks(context.instance, workspace, results, run=context.run)
    failing = [each for each in results if not each.passed]
    context.add_output_metadata(
        {
            "checks": len(results),
            "failing": len(failing),
            "results": table(
                ("check", "passed:bool", "told"), [(each.check_name, each.passed, each.description) for each in results]
            ),
        }
    )
    return [str(each.check_name) for each in failing]


@dg.op
def maintain(
    context: dg.OpExecutionContext, config: MaintenanceConfig, services: dg.ResourceParam[Services]
) -> dict[str, int]:
    """Forget what nobody asks for any more: old automatic runs, old events, settled rows of the outbox.

    Ticks are forgotten by Dagster itself, after dagster.yaml.
    """
    with named_failures(), services.database.transaction(Role.INDEXER, None, via=services.via) as tx:
        pruned = monitor.prune(tx, days=config.settled)
    forgotten = {
        "runs": forget_runs(context.instance, days=config.runs, failed_days=config.failed_runs),
        "events": forget_events(context.instance, days=config.events),
        "settled": pruned.propagations,
        "changes": pruned.changes,
    }
    context.add_output_metadata(dict(forgotten))
    return forgotten


@dg.job(partitions_def=WORKSPACE)
def propagate_job() -> None:
    """Drain the outbox of one workspace into its index."""
    propagate()


@dg.job(partitions_def=WORKSPACE)
def rebuild_job() -> None:
    """Rebuild the index of one workspace; searches go on meanwhile, with the old one."""
    rebuild()


@dg.job(partitions_def=WORKSPACE)
def reconcile_job() -> None:
    """Find and mend drift between the registry and the index of one workspace."""
    reconcile()


@dg.job(partitions_def=WORKSPACE)
def consistency_job() -> None:
    """Run every check of one workspace and change nothing."""
    check_everything()


@dg.job
def maintenance_job() -> None:
    """Keep the event log and the outbox small."""
    maintain()


JOBS = [propagate_job, rebuild_job, reconcile_job, consistency_job, maintenance_job]


@contextlib.contextmanager
def _shown(context: dg.OpExecutionContext, services: Services, workspace: str) -> Iterator[None]:
    """Show on the graph and on the checks how the workspace is afterwards, also where the work failed half-way."""
    try:
        yield
    finally:
        reported = report_quietly(context.instance, services, workspace)
        if reported.problem:
            context.log.warning("not everything could be reported: %s", reported.problem)
        with contextlib.suppress(MemoryPipelineError):  # the servers are down: the work says so itself
            results = quick_results(context.instance, services, workspace)
            report_checks(context.instance, workspace, results, run=context.run)


def _tell(context: dg.OpExecutionContext, drained: DrainReport) -> None:
    for card in drained.failed[:SHOWN]:
        context.log.warning("%s waits: %s", card.card_id, card.error)
    if drained.problem:
        raise dg.Failure(
            description=f"{drained.problem.error}: {drained.problem.message}. {drained.problem.hint}.",
            metadata={
                "error": drained.problem.error,
                "message": drained.problem.message,
                "hint": drained.problem.hint,
                "exit_code": drained.problem.exit_code,
                "pending": drained.pending,
            },
            allow_retries=False,  # the outbox knows when to try again, and the sensor asks it
        )
    context.add_output_metadata(
        {
            "upserted": drained.upserted,
            "payload_only": drained.payload_only,
            "removed": drained.removed,
            "embedded": drained.embedded,
            "failed": len(drained.failed),
            "pending": drained.pending,
            "parked": drained.parked,
        }
    )
