"""Assets over the ledger: what was read, what of it counts, what became of each session's concepts."""

from __future__ import annotations

import dagster as dg

from memory_pipeline.core.effective import Status as RowStatus
from memory_pipeline.core.summary_markdown import summaries_markdown
from memory_pipeline.defs.assets.about import DERIVED, EFFECTIVE, LEDGER, SOURCE, SOURCES, about
from memory_pipeline.defs.assets.workspace import workspace_asset
from memory_pipeline.defs.metadata import Page, Status, table
from memory_pipeline.operations.inbox import read_inbox
from memory_pipeline.operations.measure import SHOWN, measure_effective, measure_ledger
from memory_pipeline.operations.services import Services
from memory_pipeline.operations.summary import summarise_workspace

_PER_KIND = 10
"""Concepts of each kind that the summary shows of a session."""


@workspace_asset(
    kinds={"postgres", "json"},
    code_version="1",
    metadata=about("ledger_entries", LEDGER, "docs/ledger.md"),
    tags=SOURCE,
)
def session_ledger(context: dg.AssetExecutionContext, services: Services, workspace: str) -> dg.MaterializeResult[None]:
    """The append-only ledgers of all sessions. One row is one decision of one session.

    Reads every file of the workspace's inbox on from where it was left, so a repetition reads nothing twice. A bad line
    goes to quarantine, a file that changed where it was read before is refused whole; neither stops the rest.
    """
    readings, problems = read_inbox(services, workspace)
    read, refused = sum(reading.entries for reading in readings), sum(item.lines_quarantined for item in readings)
    if refused or problems:
        context.log.warning("%d lines went to quarantine, %d files were refused", refused, len(problems))
    return ledger_page(services, workspace).result(
        Status.DONE if read or refused or problems else Status.NOTHING_TO_DO,
        entries_read=read,
        lines_quarantined=refused,
        files_refused=len(problems),
        problems=table(
            ("file", "error", "message", "what to do"),
            [(problem.file, problem.error, problem.message, problem.hint) for problem in problems[:SHOWN]],
        ),
    )


@workspace_asset(
    deps=[session_ledger],
    kinds={"postgres"},
    code_version="1",
    metadata=about("effective_decisions", EFFECTIVE, "docs/ledger.md"),
    tags=DERIVED,
)
def effective_ledger(_: dg.AssetExecutionContext, services: Services, workspace: str) -> dg.MaterializeResult[None]:
    """What every row of the ledgers is worth today. A view: nothing is written, only measured.

    A decision is *effective* until a later one retracts it or a rollback makes it stale.
    """
    page = effective_page(services, workspace)
    return page.result(Status.DONE if page.preview.records else Status.NOTHING_TO_DO)


@workspace_asset(
    deps=[effective_ledger],
    kinds={"postgres"},
    code_version="2",
    metadata=about("card_sources", SOURCES, "docs/ledger.md"),
    tags=DERIVED,
)
def session_memories(_: dg.AssetExecutionContext, services: Services, workspace: str) -> dg.MaterializeResult[None]:
    """What each session gave to the registry: concepts promoted, declined, and those that wait for a reviewer.

    Measures only, by today's rules. The figures are of all sessions, tables and summary of the newest ones.
    """
    page = memories_page(services, workspace)
    return page.result(Status.DONE if page.preview.records else Status.NOTHING_TO_DO)


def ledger_page(services: Services, workspace: str) -> Page:
    """Every session's extent, and the newest lines in quarantine."""
    measure = measure_ledger(services, workspace)
    return Page(
        measure.data_version,
        {
            "dagster/row_count": measure.entries,
            "sessions": len(measure.sessions),
            "entries": measure.entries,
            "quarantined": measure.quarantined,
            "quarantine": table(
                ("file", "line:int", "reason", "message", "at"),
                [
                    (line.source, line.line_number, line.reason, line.message, line.quarantined_at)
                    for line in measure.refused
                ],
            ),
        },
        table(
            ("session", "door", "entries:int", "last seq:int", "quarantined:int", "newest"),
            [
                (
                    session.session_id,
                    session.door,
                    session.entries,
                    session.last_seq,
                    session.quarantined,
                    session.newest,
                )
                for session in measure.sessions[:SHOWN]
            ],
        ),
    )


def effective_page(services: Services, workspace: str) -> Page:
    """Rows by status, session by session."""
    measure = measure_effective(services, workspace)
    by_status = measure.by_status
    return Page(
        measure.data_version,
        {
            "dagster/row_count": by_status[RowStatus.EFFECTIVE],
            **{f"rows_{status}": by_status[status] for status in RowStatus},
            "effective_by_type": table(("type", "rows:int"), measure.effective_by_type.most_common()),
        },
        table(
            ("session", *(f"{status}:int" for status in RowStatus)),
            [
                (session, *(counts[status] for status in RowStatus))
                for session, counts in list(measure.by_session.items())[:SHOWN]
            ],
        ),
    )


def memories_page(services: Services, workspace: str) -> Page:
    """What became of each session's concepts."""
    told = summarise_workspace(services, workspace, shown=SHOWN)
    return Page(
        told.data_version,
        {
            "sessions": told.sessions,
            "cards": told.cards,
            "promoted": told.approved,
            "declined": told.declined,
            "pending": told.undecided,
            "sessions_pending": told.undecided_sessions,
            "hidden": told.hidden,
            "drift": told.drift,
            "summary": dg.MetadataValue.md(summaries_markdown(told.newest, told.sessions, rows=_PER_KIND)),
            "to_decide": table(
                ("session", "seq:int", "subject", "detail", "warnings"),
                [
                    (session, found.seqs[0], found.subject, found.detail, "; ".join(found.warnings))
                    for session, found in told.waiting
                ],
            ),
        },
        table(
            (
                "session",
                "pending:int",
                "promoted:int",
                "declined:int",
                "hidden:int",
                "drift:int",
                "cards",
                "question",
            ),
            [
                (
                    session.session,
                    session.undecided,
                    len(session.approved),
                    len(session.declined),
                    sum(session.hidden.values()),
                    session.drift,
                    ", ".join(dict.fromkeys(one.card_id for one in session.approved if one.card_id)),
                    session.question,
                )
                for session in told.newest
            ],
        ),
    )
