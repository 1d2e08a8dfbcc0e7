"""Telling Dagster what changed outside its runs, so that the graph shows a workspace as it is.

A promotion, an edit or a drain changes rows wherever it was made. Each asset whose rows are not those that the event
log knows is reported as a materialisation without a run: upstream before downstream, with its data version, its code
version, and for each input the version and the event on which it rests: without the last two Dagster takes it for
stale.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import dagster as dg

from memory_pipeline.core.errors import IndexUnavailable, MemoryPipelineError
from memory_pipeline.defs.assets.index import (
    collection_page,
    dense_embeddings,
    dense_page,
    memory_collection,
    sparse_embeddings,
    sparse_page,
)
from memory_pipeline.defs.assets.ledger import (
    effective_ledger,
    effective_page,
    ledger_page,
    memories_page,
    session_ledger,
    session_memories,
)
from memory_pipeline.defs.assets.registry import cards_page, memory_cards
from memory_pipeline.defs.event_log import RUNLESS, forget_runless_result
from memory_pipeline.defs.metadata import RETIRED, Page, Status
from memory_pipeline.defs.partitions import WORKSPACE
from memory_pipeline.operations.measure import is_retired, measure_index, measure_texts
from memory_pipeline.operations.services import Services

_LOG = logging.getLogger(__name__)

_Value = TypeVar("_Value")

DATA_VERSION = "dagster/data_version"
CODE_VERSION = "dagster/code_version"
INPUT_VERSION = "dagster/input_data_version"
INPUT_EVENT = "dagster/input_event_pointer"

_MEASURED: Mapping[dg.AssetsDefinition, Callable[[Services, str], Page]] = {
    session_ledger: ledger_page,
    effective_ledger: effective_page,
    session_memories: memories_page,
    memory_cards: cards_page,
}
"""What is true of itself: measured, and reported as it is."""

_DERIVED = (dense_embeddings, sparse_embeddings, memory_collection)


class Reported(NamedTuple):
    """Assets that were reported now. `problem`: why the derived ones could not be measured."""

    assets: tuple[str, ...]
    problem: str | None = None


class _Event(NamedTuple):
    """A materialisation of an asset in one partition."""

    storage_id: int
    tags: Mapping[str, str]

    @property
    def data_version(self) -> str:
        return self.tags.get(DATA_VERSION, "")


def report_workspace(instance: dg.DagsterInstance, services: Services, workspace: str) -> Reported:
    """Report every asset of a workspace of which the event log knows another version. Repeating it reports nothing.

    What is derived is reported only where the index follows the registry: until then it is stale, and shown so.

    Raises:
        UnknownWorkspace: there is none of that name.
        StoreUnavailable: the registry cannot be measured.
    """
    instance.add_dynamic_partitions(str(WORKSPACE.name), [workspace])
    reported: list[str] = []
    problem = None
    try:
        for asset, page in _pages(services, workspace):
            if _report(instance, asset, page, workspace):
                reported.append(asset.key.to_user_string())
    except IndexUnavailable as error:
        problem = f"{error.name}: {error.message}"
    return Reported(tuple(reported), problem)


def report_quietly(instance: dg.DagsterInstance, services: Services, workspace: str) -> Reported:
    """As `report_workspace`, after a change that is committed: the change stands whatever comes of this.

    A sensor reports what is missed here.
    """
    try:
        return report_workspace(instance, services, workspace)
    except MemoryPipelineError as error:
        return Reported((), f"{error.name}: {error.message}")
    except Exception as error:  # noqa: BLE001 - an event log can fail in any way, and none of them may undo an answer
        _LOG.warning("workspace %s could not be reported: %s", workspace, type(error).__name__)
        return Reported((), type(error).__name__)


def report_checks(
    instance: dg.DagsterInstance,
    workspace: str | None,
    results: Iterable[dg.AssetCheckResult],
    *,
    run: dg.DagsterRun | None = None,
) -> None:
    """Report results of checks that were found outside a run of theirs. Each names its asset and its check.

    Args:
        workspace: the partition; none for a check of all workspaces.
        run: the run of another job in which they were found, so that the UI leads there.
    """
    for result in results:
        key = dg.AssetCheckKey(_given(result.asset_key), _given(result.check_name))
        if workspace is not None and run is None:
            forget_runless_result(instance, key, workspace)
        instance.report_dagster_event(
            dg.DagsterEvent(
                event_type_value=dg.DagsterEventType.ASSET_CHECK_EVALUATION.value,
                job_name=run.job_name if run else "",
                event_specific_data=dg.AssetCheckEvaluation(
                    asset_key=key.asset_key,
                    check_name=key.name,
                    passed=bool(result.passed),
                    severity=result.severity,
                    description=result.description,
                    metadata=result.metadata or {},
                    partition=workspace,
                ),
            ),
            run_id=run.run_id if run else RUNLESS,
        )


def _given(value: _Value | None) -> _Value:
    if value is None:
        raise ValueError("a result that is reported names its asset and its check")
    return value


def _pages(services: Services, workspace: str) -> Iterator[tuple[dg.AssetsDefinition, Page]]:
    """Every asset that can be told, upstream first, measured one by one."""
    if is_retired(services, workspace):
        yield from ((asset, RETIRED) for asset in (*_MEASURED, *_DERIVED))
        return
    for asset, measured in _MEASURED.items():
        yield asset, measured(services, workspace)
    index, texts = measure_index(services, workspace), measure_texts(services, workspace)
    if index is None or texts is None or index.differences() or texts.cards != index.active:
        return
    yield dense_embeddings, dense_page(services, workspace, texts.dense, texts.cards)
    yield sparse_embeddings, sparse_page(services, workspace, texts.lexical, texts.cards)
    yield memory_collection, collection_page(index)


def _report(instance: dg.DagsterInstance, asset: dg.AssetsDefinition, page: Page, workspace: str) -> bool:
    """Report one asset, unless its newest event says the same of the same inputs."""
    (spec,) = asset.specs
    inputs: dict[str, _Event] = {}
    for dep in spec.deps:
        if (upstream := _event(instance, dep.asset_key, workspace)) is None:
            return False  # reported with its upstream, once that is there
        inputs[dep.asset_key.to_user_string()] = upstream
    known = _event(instance, asset.key, workspace)
    if (
        known
        and (known.data_version, known.tags.get(CODE_VERSION)) == (page.data_version, spec.code_version)
        and all(_rests_on(instance, known, name, workspace) == each.data_version for name, each in inputs.items())
    ):
        return False
    instance.report_runless_asset_event(
        dg.AssetMaterialization(
            asset_key=asset.key,
            partition=workspace,
            description="what changed outside a run",
            metadata={
                "status": (Status.RETIRED if page is RETIRED else Status.REPORTED).value,
                **page.figures,
                "preview": page.preview,
            },
            tags={
                DATA_VERSION: page.data_version,
                CODE_VERSION: str(spec.code_version),
                **{f"{INPUT_VERSION}/{name}": each.data_version for name, each in inputs.items()},
                **{f"{INPUT_EVENT}/{name}": str(each.storage_id) for name, each in inputs.items()},
            },
        )
    )
    return True


def _rests_on(instance: dg.DagsterInstance, known: _Event, name: str, workspace: str) -> str | None:
    """The version of an input on which an event rests, by its pointer, as Dagster judges it.

    The version that a run writes beside the pointer is not the one that its input gave (1.13.27).
    """
    pointer = known.tags.get(f"{INPUT_EVENT}/{name}", "")
    if not pointer.isdecimal():
        return None
    before = _event(instance, dg.AssetKey.from_user_string(name), workspace, int(pointer))
    return before.data_version if before else None


def _event(
    instance: dg.DagsterInstance, key: dg.AssetKey, workspace: str, storage_id: int | None = None
) -> _Event | None:
    """The newest materialisation of an asset in one partition, or that with a storage id."""
    wanted = dg.AssetRecordsFilter(
        asset_key=key, asset_partitions=[workspace], storage_ids=None if storage_id is None else [storage_id]
    )
    records = instance.fetch_materializations(wanted, limit=1).records
    if not records or records[0].asset_materialization is None:
        return None
    return _Event(records[0].storage_id, records[0].asset_materialization.tags or {})
