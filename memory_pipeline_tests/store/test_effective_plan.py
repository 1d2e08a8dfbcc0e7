"""What one session's decisions cost among many sessions: the plan, and the rows and pages that it touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from psycopg import Rollback
from psycopg.types.json import Json

from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.store import ledger
from memory_pipeline.store.database import Role, Transaction

pytestmark = pytest.mark.integration

ROWS = 8
"""Rows of each session, one of them the pipeline's."""

SESSION = "s1500"
QUERY = "SELECT seq, subject FROM effective_decisions WHERE workspace = %s AND session_id = %s ORDER BY seq"


class Cost(NamedTuple):
    """What a query touched: rows of `ledger_entries` that were read, whole scans of it, pages of everything."""

    rows: int
    scans: int
    pages: int


@pytest.mark.parametrize("analysed", [False, True], ids=["without statistics", "analysed"])
@pytest.mark.parametrize("sessions", [3000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_the_decisions_of_one_session_cost_its_own_rows(
    services: Services, workspace: Workspace, sessions: int, analysed: bool
) -> None:
    with services.database.transaction(Role.OWNER, workspace.slug) as tx:
        _fill(tx, workspace.slug, sessions)
        if analysed:
            tx.execute("ANALYZE sessions, ledger_entries")
        found = tx.execute(QUERY, (workspace.slug, SESSION)).fetchall()
        scans, plan = _cost(tx, workspace.slug), _inner_plan(tx, workspace.slug)
        raise Rollback
    assert [row["seq"] for row in found] == [2, 4, 6]
    assert scans.scans == 0
    assert scans.rows <= 2 * ROWS  # once for the statuses, once for the rows that they stand for
    assert scans.pages < 200
    (scan,) = [scan for scan in plan if scan.get("Relation Name") == "ledger_entries"]
    assert scan["Node Type"] in {"Index Scan", "Bitmap Heap Scan"}  # both by the index; statistics decide
    assert all(_touched(scan) <= ROWS for scan in plan if "Relation Name" in scan)


@pytest.mark.parametrize("sessions", [3000])
def test_so_do_the_end_and_the_question_of_a_session(services: Services, workspace: Workspace, sessions: int) -> None:
    """Both are asked with every line that is appended, and every preview."""
    with services.database.transaction(Role.OWNER, workspace.slug) as tx:
        _fill(tx, workspace.slug, sessions)
        before = _rows_read(tx)
        asked = (ledger.last_seq(tx, workspace.slug, SESSION), ledger.question_of(tx, workspace.slug, SESSION))
        after = _rows_read(tx)
        raise Rollback
    assert asked == (7, "q")
    assert after.scans == before.scans
    assert after.rows - before.rows <= 2 * ROWS


@pytest.mark.parametrize("analysed", [False, True], ids=["without statistics", "analysed"])
def test_a_long_session_among_short_ones_costs_its_own_rows(
    services: Services, workspace: Workspace, analysed: bool
) -> None:
    """Statistics tell of short sessions: a plan that is good for those alone would read this one once for each row."""
    length = 3000
    with services.database.transaction(Role.OWNER, workspace.slug) as tx:
        _fill(tx, workspace.slug, 1000)
        tx.execute(
            """
            INSERT INTO ledger_entries (workspace, session_id, origin, seq, ts, phase, type, subject)
            SELECT %s, 's500', 'harness', number, now(), 'F6', 'concept_clarified', 'x'
            FROM generate_series(8, %s) AS number
            """,
            (workspace.slug, length),
        )
        if analysed:
            tx.execute("ANALYZE sessions, ledger_entries")
        costs = []
        for ask in (ledger.effective_decisions, ledger.declined_seqs, ledger.rows_with_status):
            before = _rows_read(tx)
            ask(tx, workspace.slug, "s500")
            after = _rows_read(tx)
            costs.append(after.rows - before.rows)
        raise Rollback
    # Once for the statuses and once for the rows that they stand for. Where a session is a good part of a small ledger,
    # the first may as well read all of that: a few times its length, and never the square of it.
    assert max(costs) <= 10 * length


def _fill(tx: Transaction, workspace: str, sessions: int) -> None:
    """Many sessions alike, as the owner, who lifts its own rule on rows of the pipeline for this transaction."""
    tx.execute("DROP POLICY owner_marks_none ON ledger_entries")
    tx.execute(
        """
        INSERT INTO sessions (workspace, session_id, door)
        SELECT %s, 's' || number, 'append' FROM generate_series(1, %s) AS number
        """,
        (workspace, sessions),
    )
    lines = [
        {"seq": 1, "type": "session_opened", "detail": "", "question": "q"},
        {"seq": 2, "type": "concept_clarified", "detail": "", "subject": "a"},
        {"seq": 3, "type": "concept_clarified", "detail": "", "subject": "b"},
        {"seq": 4, "type": "concept_clarified", "detail": "", "subject": "c"},
        {"seq": 5, "type": "a_type_of_next_year", "detail": ""},
        {"seq": 6, "type": "decision_retracted", "detail": "seq:3"},
        {"seq": 7, "type": "phase_rolled_back", "detail": "phase:F5"},
        {"pseq": 1, "type": "memory_promoted", "detail": "seq:2"},
    ]
    tx.execute(
        """
        INSERT INTO ledger_entries (workspace, session_id, origin, seq, pseq, after_seq, ts, phase, type, detail,
                                    subject, question)
        SELECT %s, 's' || number, CASE WHEN line.seq IS NULL THEN 'pipeline' ELSE 'harness' END,
               line.seq, line.pseq, CASE WHEN line.seq IS NULL THEN 4 END, now(), 'F1', line.type, line.detail,
               line.subject, line.question
        FROM generate_series(1, %s) AS number
        CROSS JOIN jsonb_to_recordset(%s::jsonb) AS line (
            seq bigint, pseq bigint, type text, detail text, subject text, question text
        )
        """,
        (workspace, sessions, Json(lines)),
    )


def _cost(tx: Transaction, workspace: str) -> Cost:
    """What the query touches, the function inside it included."""
    before = _rows_read(tx)
    (plan,) = _explain(tx, QUERY, workspace, SESSION)
    after = _rows_read(tx)
    pages = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    return Cost(after.rows - before.rows, after.scans - before.scans, pages)


def _rows_read(tx: Transaction) -> Cost:
    """Rows and whole scans of the ledger in this transaction so far, by whatever read them."""
    row = tx.execute(
        """
        SELECT seq_tup_read + idx_tup_fetch AS rows, seq_scan AS scans FROM pg_stat_xact_user_tables
        WHERE relid = 'memory.ledger_entries'::regclass
        """
    ).fetchone()
    assert row is not None
    return Cost(row["rows"], row["scans"], 0)


def _inner_plan(tx: Transaction, workspace: str) -> list[dict[str, Any]]:
    """The nodes of the plan of the function's own query, which a plan around it does not show."""
    row = tx.execute("SELECT prosrc FROM pg_proc WHERE proname = 'session_status'").fetchone()
    assert row is not None
    body = row["prosrc"].replace("p_workspace", "%s").replace("p_session_id", "%s")
    tx.execute("SET LOCAL enable_nestloop = off")
    (plan,) = _explain(tx, body, workspace, SESSION)
    return list(_nodes(plan["Plan"]))


def _explain(tx: Transaction, query: str, *parameters: str) -> list[dict[str, Any]]:
    row = tx.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", parameters).fetchone()
    assert row is not None
    plans: list[dict[str, Any]] = row["QUERY PLAN"]
    return plans


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", []):
        yield from _nodes(inner)


def _touched(scan: dict[str, Any]) -> int:
    """Rows that a scan gave, and those that it read in vain."""
    return int((scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"])
