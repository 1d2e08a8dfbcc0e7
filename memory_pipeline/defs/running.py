"""Running the assets of one workspace from a program, so that the UI shows the run as any other."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import dagster as dg

from memory_pipeline.core.errors import MemoryPipelineError
from memory_pipeline.defs.jobs import index_job
from memory_pipeline.defs.partitions import WORKSPACE

Progress = Callable[[str], None]
"""Told the name of each asset when it is done."""

_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""The run's log is in the instance; the terminal belongs to the caller."""


class AssetFailed(MemoryPipelineError):
    """An asset failed. Tells the named error that stopped it, and has the exit code of that error's family."""

    def __init__(self, asset: str, run_id: str, failure: Mapping[str, dg.MetadataValue]) -> None:
        told = {name: value.value for name, value in failure.items()}
        error, message = told.get("error", "a defect"), told.get("message", "nothing more is known here")
        super().__init__(
            f"asset {asset} failed: {error}: {message}",
            hint=f"{told.get('hint', 'read the log of its run')}; its run is {run_id}",
        )
        self.asset = asset
        self.run_id = run_id
        self.exit_code = int(str(told.get("exit_code", 1)))  # type: ignore[misc] # the family of what stopped it


@dataclass(frozen=True)
class WorkspaceRun:
    """One run over all assets of a workspace. `rows`: each asset and check, and in words what it came to.

    `checks_passed`: no check failed; one that only warns fails nothing.
    """

    run_id: str
    rows: tuple[tuple[str, str], ...]
    checks_passed: bool


def materialize_workspace(
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    workspace: str,
    *,
    resources: Mapping[str, object] | None = None,
    progress: Progress = lambda _: None,
) -> WorkspaceRun:
    """Materialise every asset of a workspace in this process, in one run of `index_job`.

    Args:
        instance: where the run and its events are kept.
        resources: stand in for the definitions' own, such as `{"services": services}`.

    Raises:
        AssetFailed: an asset failed; what came before it stays, and a repetition goes on from there.
    """
    instance.add_dynamic_partitions(str(WORKSPACE.name), [workspace])
    run_id = str(uuid.uuid4())
    instance.add_event_listener(run_id, _Listener(progress))
    outcome = definitions.resolve_job_def(index_job.name).execute_in_process(
        instance=instance,
        partition_key=workspace,
        run_id=run_id,
        run_config=_QUIET,
        resources=resources,
        raise_on_error=False,
    )
    if not outcome.success:
        raise _failure(outcome)
    checks = outcome.get_asset_check_evaluations()
    return WorkspaceRun(
        run_id=run_id,
        rows=(
            *(_asset_row(event) for event in outcome.get_asset_materialization_events()),
            *(_check_row(check) for check in checks),
        ),
        checks_passed=all(check.passed or check.severity is dg.AssetCheckSeverity.WARN for check in checks),
    )


class _Listener:
    """Called by the instance with every event of the run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __call__(self, entry: dg.EventLogEntry) -> None:
        event = entry.dagster_event
        if event is not None and event.is_step_materialization and event.asset_key is not None:
            self._progress(event.asset_key.to_user_string())


def _asset_row(event: dg.DagsterEvent) -> tuple[str, str]:
    """The status, and every count that is not zero."""
    materialization = event.step_materialization_data.materialization
    metadata = {name: value.value for name, value in materialization.metadata.items()}
    counts = [
        f"{value} {name.replace('_', ' ')}"
        for name, value in metadata.items()
        if isinstance(value, int) and value and not name.startswith("dagster/")
    ]
    return materialization.asset_key.to_user_string(), ", ".join([str(metadata.get("status", "")), *counts])


def _check_row(check: dg.AssetCheckEvaluation) -> tuple[str, str]:
    warns = check.severity is dg.AssetCheckSeverity.WARN
    verdict = "passed" if check.passed else "warns" if warns else "FAILED"
    return f"{check.asset_key.to_user_string()}: {check.check_name}", f"{verdict}: {check.description or ''}"


def _failure(outcome: dg.ExecuteInProcessResult) -> AssetFailed:
    """The first step that failed, as an error to raise. There is none where the run broke before its first step."""
    for event in outcome.get_step_failure_events():
        told = event.step_failure_data.user_failure_data
        return AssetFailed(event.step_key or "", outcome.run_id, dict(told.metadata) if told else {})
    return AssetFailed("", outcome.run_id, {})
