"""Asset checks, one result per workspace. The rules are in `core.health`, `core.drift` and `operations`; here they are
wired and reported.

A check whose input must not flow on if it fails is blocking. One that only warns fails no run. What costs a few queries
is told after every drain too; what compares both stores point by point runs with the whole graph, and nightly.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it calls as objects.

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg

from memory_pipeline.core import health
from memory_pipeline.core.display import counted
from memory_pipeline.core.drift import DriftKind
from memory_pipeline.core.errors import MemoryPipelineError
from memory_pipeline.core.health import Verdict
from memory_pipeline.defs.assets.index import memory_collection, waiting_table
from memory_pipeline.defs.assets.ledger import session_ledger
from memory_pipeline.defs.assets.registry import memory_cards
from memory_pipeline.defs.failures import named_failures
from memory_pipeline.defs.metadata import Status, table
from memory_pipeline.defs.partitions import WORKSPACE
from memory_pipeline.operations.consistency import DriftReport, check_consistency
from memory_pipeline.operations.generation import rebuild_due
from memory_pipeline.operations.health import check_backlog, check_gate
from memory_pipeline.operations.measure import SHOWN, IndexMeasure, is_retired, measure_index, measure_ledger
from memory_pipeline.operations.provenance import Lapsed, promotions_without_card, sources_no_longer_effective
from memory_pipeline.operations.services import Services

Rule = Callable[[dg.DagsterInstance, Services, str], dg.AssetCheckResult]
Decorate = Callable[[Rule], dg.AssetChecksDefinition]

_RULES: dict[dg.AssetCheckKey, Rule] = {}
"""What each check that is made here asks, for whoever tells its result without a run of its own."""

SCANNED: Mapping[str, tuple[DriftKind, ...]] = {
    "points_match_cards": (
        DriftKind.MISSING,
        DriftKind.STALE,
        DriftKind.TEXT_CHANGED,
        DriftKind.UNACKNOWLEDGED,
        DriftKind.LACKS_VECTOR,
    ),
    "no_orphans": (DriftKind.ORPHAN, DriftKind.DUPLICATE),
    "no_forbidden_type": (DriftKind.FORBIDDEN_TYPE, DriftKind.WRONG_KIND),
    "vector_configuration": (DriftKind.COLLECTION_MISSING, DriftKind.WRONG_CONFIGURATION, DriftKind.WRONG_ALIAS),
}
"""Checks that one comparison of both stores answers, and what fails each."""

_EVENTS = 20

_SCANNED_ABOUT = {
    "points_match_cards": "Every active card has its point, at its revision and with its hash, and both vectors.",
    "no_orphans": "No point stands for a card that is not active, and no card has two.",
    "no_forbidden_type": "Nothing is projected that must stay with its question, or as another kind than it is.",
    "vector_configuration": "The collection has the vectors and indexes that it must, and its alias points to it.",
}


def workspace_check(
    asset: dg.AssetsDefinition, *, blocking: bool = False
) -> Callable[[Rule], dg.AssetChecksDefinition]:
    """Make a check of a function `(instance, services, workspace)`. Its docstring describes it in the UI.

    A retired workspace passes with that note: nothing is derived for it, so nothing can be behind.
    """

    def decorate(rule: Rule) -> dg.AssetChecksDefinition:
        _RULES[dg.AssetCheckKey(asset.key, rule.__name__)] = rule
        with warnings.catch_warnings():
            # Checks by partition are a preview in Dagster 1.13: without them the last workspace's result hides all
            # others.
            warnings.simplefilter("ignore", dg.PreviewWarning)

            @dg.asset_check(
                asset=asset,
                name=rule.__name__,
                description=inspect.getdoc(rule),
                blocking=blocking,
                partitions_def=WORKSPACE,
            )
            def check(
                context: dg.AssetCheckExecutionContext, services: dg.ResourceParam[Services]
            ) -> dg.AssetCheckResult:
                workspace = context.partition_key
                with named_failures():
                    if is_retired(services, workspace):
                        return _retired()
                    return rule(context.instance, services, workspace)

        return check

    return decorate


@workspace_check(session_ledger)
def ledger_accepted(instance: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckResult:
    """Every line and every file that came in was taken.

    Warns of lines in quarantine, and of files that the newest reading refused whole: both wait for a person.
    """
    quarantined = measure_ledger(services, workspace).quarantined
    return told(health.accepted(quarantined, _files_refused(instance, workspace)))


@workspace_check(memory_cards, blocking=True)
def cards_keep_to_the_gate(_: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckResult:
    """Every card is of a type that its kind may have, and says what its newest revision kept.

    Blocks: a card that got past the reviewer must not flow on into the index.
    """
    return told(check_gate(services, workspace))


@workspace_check(memory_cards)
def sources_still_effective(_: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckResult:
    """Behind every active card stands a decision that still counts, or a curator or an import.

    Warns of cards whose decisions were all retracted or rolled back since: they stay until a reviewer decides.
    """
    return report_sources(sources_no_longer_effective(services, workspace))


@workspace_check(memory_cards)
def promotions_have_cards(_: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckResult:
    """Every promotion that a ledger tells of has its card.

    Warns of markers without one, as a file of an older system may hold: `reconcile` proposes what to do.
    """
    lines = [f"{marker.session_id}:{marker.line}" for marker in promotions_without_card(services, workspace)]
    return told(health.promotions(lines))


@workspace_check(memory_collection)
def index_matches_registry(_: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckResult:
    """Every active card has its current point, nothing else has one, and nothing waits.

    Compares active cards, acknowledged projections and the points counted on the server.
    """
    return report(measure_index(services, workspace))


@workspace_check(memory_collection)
def index_is_fresh(_: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckResult:
    """The index holds the newest revision of every card, or what it lacks changed less than ten minutes ago."""
    return freshness(measure_index(services, workspace))


@workspace_check(memory_collection)
def propagation_flows(_: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckResult:
    """Nothing has waited in the outbox for ten minutes, and nothing has used up its tries."""
    return told(check_backlog(services, workspace))


@workspace_check(memory_collection)
def embedding_fingerprint(_: dg.DagsterInstance, services: Services, workspace: str) -> dg.AssetCheckResult:
    """The index was built with the model, profile, analyser and language that one built now would have.

    Warns that a rebuild is due: until then the index serves as it was built. `rebuild_job` does it.
    """
    try:
        return told(health.fingerprint(rebuild_due(services, workspace)))
    except MemoryPipelineError as error:  # the embedder's own state is no defect of the index
        return told(health.fingerprint((), unknown=error.message))


def _scan_specs() -> list[dg.AssetCheckSpec]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(
                name=name, asset=memory_collection, description=_SCANNED_ABOUT[name], partitions_def=WORKSPACE
            )
            for name in SCANNED
        ]


@dg.multi_asset_check(name="stores_agree", specs=_scan_specs())
def stores_agree(
    context: dg.AssetCheckExecutionContext, services: dg.ResourceParam[Services]
) -> Iterator[dg.AssetCheckResult]:
    """One comparison of both stores, told as several checks."""
    with named_failures():
        yield from scan_results(services, context.partition_key)


CHECKS = [
    ledger_accepted,
    cards_keep_to_the_gate,
    sources_still_effective,
    promotions_have_cards,
    index_matches_registry,
    index_is_fresh,
    propagation_flows,
    embedding_fingerprint,
    stores_agree,
]

WARNINGS = frozenset({"ledger_accepted", "sources_still_effective", "promotions_have_cards", "embedding_fingerprint"})
"""Checks that only ever warn: they ask for a look, and a workspace is well without it."""

QUICK = ("index_matches_registry", "index_is_fresh", "propagation_flows")
"""Checks on the collection that cost a few queries."""


def all_results(instance: dg.DagsterInstance, services: Services, workspace: str) -> list[dg.AssetCheckResult]:
    """What every check comes to now."""
    return [*_results(instance, services, workspace, _RULES), *scan_results(services, workspace)]


def quick_results(instance: dg.DagsterInstance, services: Services, workspace: str) -> list[dg.AssetCheckResult]:
    """What the checks of `QUICK` come to now."""
    keys = [key for key in _RULES if key.name in QUICK]
    return _results(instance, services, workspace, keys)


def lasting(results: Sequence[dg.AssetCheckResult]) -> list[dg.AssetCheckResult]:
    """Results without what is about to pass by itself: an index that differs only while a change is on its way."""
    by_name = {result.check_name: result for result in results}
    on_its_way = bool(by_name["propagation_flows"].passed and by_name["index_is_fresh"].passed)
    return [
        result
        for result in results
        if result.passed or not (on_its_way and result.check_name == "index_matches_registry" and _waits(result))
    ]


def _waits(result: dg.AssetCheckResult) -> bool:
    pending = (result.metadata or {}).get("pending")
    return isinstance(pending, dg.IntMetadataValue) and bool(pending.value)


def scan_results(services: Services, workspace: str) -> list[dg.AssetCheckResult]:
    """What the checks that compare both stores come to now."""
    if is_retired(services, workspace):
        return [_named(dg.AssetCheckKey(memory_collection.key, name), _retired()) for name in SCANNED]
    found = check_consistency(services, workspace)
    return [_scanned(name, kinds, found) for name, kinds in SCANNED.items()]


def _results(
    instance: dg.DagsterInstance, services: Services, workspace: str, keys: Iterable[dg.AssetCheckKey]
) -> list[dg.AssetCheckResult]:
    gone = is_retired(services, workspace)
    return [_named(key, _retired() if gone else _RULES[key](instance, services, workspace)) for key in keys]


def told(verdict: Verdict) -> dg.AssetCheckResult:
    """A verdict as Dagster shows it."""
    return dg.AssetCheckResult(
        passed=verdict.passed,
        severity=dg.AssetCheckSeverity.WARN if verdict.warns else dg.AssetCheckSeverity.ERROR,
        description=verdict.told,
        metadata=dict(verdict.figures),
    )


def freshness(measure: IndexMeasure | None) -> dg.AssetCheckResult:
    """The newest change of any card against what the index holds."""
    result = told(health.freshness(measure, datetime.now(UTC)))
    if measure is None or measure.newest_change is None:
        return result
    newest = dg.MetadataValue.timestamp(measure.newest_change.timestamp())
    return result._replace(metadata={**(result.metadata or {}), "newest_change": newest})


def report(measure: IndexMeasure | None) -> dg.AssetCheckResult:
    """The result of the comparison, with its figures."""
    if measure is None:
        return dg.AssetCheckResult(passed=False, description="the workspace was never indexed")
    differences = measure.differences()
    return dg.AssetCheckResult(
        passed=not differences,
        description="; ".join(differences)
        or f"{counted(measure.active, 'card')}, {counted(measure.points or 0, 'point')}",
        metadata={
            "active_cards": measure.active,
            "current_points": measure.current,
            "points_on_server": dg.MetadataValue.null() if measure.points is None else measure.points,
            "leftover_points": measure.leftover,
            "pending": measure.pending,
            "parked": measure.parked,
            "collection": measure.collection,
            "waiting": waiting_table(measure),
        },
    )


def report_sources(lapsed: Lapsed) -> dg.AssetCheckResult:
    """The result of the look at the sources: a warning, for the cards are a human's to change."""
    unsupported, weakened = lapsed.unsupported, lapsed.weakened
    named = ", ".join(unsupported[:SHOWN]) + (", ..." if len(unsupported) > SHOWN else "")
    return dg.AssetCheckResult(
        passed=not unsupported,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"no source of {named} counts any more" if unsupported else "every active card has a source",
        metadata={
            "cards_without_effective_source": len(unsupported),
            "cards_with_some_lapsed_source": len(weakened),
            "lapsed": table(
                ("card", "subject", "session", "seq:int", "status", "other sources:int"),
                [
                    (source.card_id, source.subject, source.session_id, source.seq, source.status, source.others)
                    for source in lapsed.sources[:SHOWN]
                ],
            ),
        },
    )


def _scanned(name: str, kinds: tuple[DriftKind, ...], found: DriftReport) -> dg.AssetCheckResult:
    counts = {kind.value: found.counts.get(kind, 0) for kind in kinds}
    wrong = [f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items() if count]
    return dg.AssetCheckResult(
        check_name=name,
        asset_key=memory_collection.key,
        passed=not wrong,
        description=", ".join(wrong)
        or f"{counted(found.cards, 'card')} and {counted(found.points or 0, 'point')} compared",
        metadata={
            **counts,
            "pending": found.pending,
            "parked": found.parked,
            "findings": table(
                ("what", "card", "seen"),
                [
                    (finding.kind.value, finding.card_id, finding.detail)
                    for finding in found.findings
                    if finding.kind in kinds
                ],
            ),
        },
    )


def _retired() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=True, metadata={"status": Status.RETIRED.value})


def _named(key: dg.AssetCheckKey, result: dg.AssetCheckResult) -> dg.AssetCheckResult:
    """A result that says of which check it is."""
    return result._replace(asset_key=key.asset_key, check_name=key.name)


def _files_refused(instance: dg.DagsterInstance, workspace: str) -> int:
    """Files that the newest reading of the inbox refused: only a reading can tell, so its event is looked for.

    What changed outside a run is reported by events of its own, which may be many.
    """
    wanted = dg.AssetRecordsFilter(asset_key=session_ledger.key, asset_partitions=[workspace])
    cursor: str | None = None
    while True:
        page = instance.fetch_materializations(wanted, limit=_EVENTS, cursor=cursor)
        for record in page.records:
            read = record.asset_materialization.metadata.get("files_refused") if record.asset_materialization else None
            if isinstance(read, dg.IntMetadataValue):
                return read.value or 0
        if not page.has_more:
            return 0
        cursor = page.cursor
