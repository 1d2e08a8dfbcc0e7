"""The SQL function `session_status` says of every ledger what the pure reference says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from psycopg import Rollback

from memory_pipeline.core.effective import Row, Status, evaluate
from memory_pipeline.core.ledger import DECISION_TYPES, EntryType
from memory_pipeline.core.references import decision_of, phase_number, phase_of
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.store.database import Role, Transaction

pytestmark = pytest.mark.integration


def examples(count: int) -> hypothesis_settings:
    """Fixtures are made once for all examples here; each example is rolled back, so none sees another's rows."""
    return hypothesis_settings(
        max_examples=count,
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


TYPES = st.sampled_from(
    [
        EntryType.CONCEPT_CLARIFIED,
        EntryType.CONCEPT_CLARIFIED,
        EntryType.DECISION_RETRACTED,
        EntryType.DECISION_RETRACTED,
        EntryType.DECISION_RETRACTED,
        EntryType.PHASE_ROLLED_BACK,
        EntryType.PHASE_REOPENED,
        *EntryType,
        "a_type_of_next_year",
    ]
)
PHASES = st.sampled_from(["F1", "F2", "F3", "F7", "F8", None, "F0", "F9", "f1", "F1 ", "F1\n", ""])
DETAILS = st.sampled_from(
    [f"seq:{seq} phase:F{phase}" for seq in range(13) for phase in range(10)]
    + [
        f"{before}seq:1{after}"
        for before in ("", "x", "è", "(", "\n")
        for after in ("a", "_", "è", ".", "\n", "0" * 18)
    ]
    + [f"phase:F2{after}" for after in ("1", ".", "è", "_")]
)
PIPELINE_TYPES = st.sampled_from(
    [EntryType.MEMORY_PROMOTED, EntryType.MEMORY_PROMOTION_DECLINED, EntryType.SESSION_CLOSED]
)


@st.composite
def ledgers(draw: st.DrawFn) -> list[Row]:
    """A session of up to 12 rows of the harness, with gaps, and up to 3 rows of the pipeline at any place."""
    seq, rows = 0, []
    for gap, type_, phase, detail in draw(
        st.lists(st.tuples(st.integers(1, 2), TYPES, PHASES, DETAILS), min_size=1, max_size=12)
    ):
        seq += gap
        rows.append(Row(seq=seq, type=type_, phase=phase, detail=detail))
    markers = draw(st.lists(st.tuples(st.integers(0, seq), PIPELINE_TYPES, PHASES, DETAILS), max_size=3))
    for pseq, (after_seq, type_, phase, detail) in enumerate(markers, start=1):
        rows.append(Row(seq=None, type=type_, phase=phase, detail=detail, after_seq=after_seq, pseq=pseq))
    return rows


# --- the property ------------------------------------------------------------------------------------------------


@examples(150)
@given(sessions=st.lists(ledgers(), min_size=1, max_size=25))
def test_sql_and_reference_give_every_row_the_same_status(
    services: Services, workspace: Workspace, sessions: list[list[Row]]
) -> None:
    """Many sessions a round trip; what fails is shrunk to one session of a few rows."""
    with services.database.transaction(Role.OWNER, workspace.slug) as tx:
        _store(tx, workspace.slug, sessions)
        found = _statuses(tx)
        raise Rollback
    assert found == [dict(zip(map(_key, rows), evaluate(rows), strict=True)) for rows in sessions]


@examples(60)
@given(sessions=st.lists(ledgers(), min_size=1, max_size=10))
def test_the_view_holds_the_effective_decisions_of_the_harness_and_nothing_else(
    services: Services, workspace: Workspace, sessions: list[list[Row]]
) -> None:
    with services.database.transaction(Role.OWNER, workspace.slug) as tx:
        _store(tx, workspace.slug, sessions)
        found = tx.execute("SELECT session_id, seq FROM effective_decisions ORDER BY session_id, seq").fetchall()
        raise Rollback
    assert [(row["session_id"], row["seq"]) for row in found] == [
        (_session(number), row.seq)
        for number, rows in enumerate(sessions)
        for row, status in zip(rows, evaluate(rows), strict=True)
        if status is Status.EFFECTIVE and row.seq is not None and row.type in DECISION_TYPES
    ]


@pytest.mark.parametrize("length", [2, 999, 1000])
def test_a_long_chain_of_retractions_is_read_from_its_end(
    services: Services, workspace: Workspace, length: int
) -> None:
    chain = [Row(seq=1, type=EntryType.CONCEPT_CLARIFIED, phase="F1", detail="")]
    chain += [Row(seq, EntryType.DECISION_RETRACTED, "F1", f"seq:{seq - 1}") for seq in range(2, length + 1)]
    with services.database.transaction(Role.OWNER, workspace.slug) as tx:
        _store(tx, workspace.slug, [chain])
        (found,) = _statuses(tx)
        raise Rollback
    assert list(found.values()) == evaluate(chain)
    assert found[1, None] is (Status.EFFECTIVE if length % 2 else Status.RETRACTED)


def test_a_session_without_rows_has_no_status(services: Services, workspace: Workspace) -> None:
    with services.database.transaction(Role.READER, workspace.slug) as tx:
        rows = tx.execute("SELECT * FROM session_status(%s, 'none')", (workspace.slug,)).fetchall()
    assert rows == []


# --- references --------------------------------------------------------------------------------------------------

FRAGMENTS = ["seq:", "phase:", "F", "mem-", "1", "7", "08", "9" * 17, "a", "_", "-", " ", "\n", "è", "٣", ".", ":", "Ⅷ"]
TEXTS = (
    st.lists(st.sampled_from(FRAGMENTS) | st.text(st.characters(codec="utf-8"), max_size=2), max_size=8)
    .map("".join)
    .filter(lambda text: "\0" not in text)
)


@examples(60)
@given(texts=st.lists(TEXTS, min_size=1, max_size=60))
def test_sql_reads_references_and_phases_as_the_reference_does(services: Services, texts: list[str]) -> None:
    with services.database.transaction(Role.READER, None) as tx:
        rows = tx.execute(
            """
            SELECT reference_seq(t.text) AS seq, reference_phase(t.text) AS phase, phase_number(t.text) AS named
            FROM unnest(%s::text[]) WITH ORDINALITY AS t (text, number) ORDER BY t.number
            """,
            (texts,),
        ).fetchall()
    assert [(row["seq"], row["phase"], row["named"]) for row in rows] == [
        (decision_of(text), phase_of(text), phase_number(text)) for text in texts
    ]


# --- helpers -----------------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """What names a row within its session."""

    seq: int | None
    pseq: int | None


def _key(row: Row) -> _Key:
    return _Key(row.seq, row.pseq)


def _session(number: int) -> str:
    return f"s{number:03d}"


def _store(tx: Transaction, workspace: str, sessions: Sequence[Sequence[Row]]) -> None:
    """Insert whole sessions in two statements, as the owner, who lifts its own rule for this transaction."""
    tx.execute("DROP POLICY IF EXISTS owner_marks_none ON ledger_entries")
    names = [_session(number) for number in range(len(sessions))]
    tx.execute(
        "INSERT INTO sessions (workspace, session_id, door) SELECT %s, name, 'append' FROM unnest(%s::text[]) AS name",
        (workspace, names),
    )
    rows = [(name, row) for name, session in zip(names, sessions, strict=True) for row in session]
    tx.execute(
        """
        INSERT INTO ledger_entries (workspace, session_id, origin, seq, pseq, after_seq, ts, phase, type, detail)
        SELECT %s, r.session_id, CASE WHEN r.seq IS NULL THEN 'pipeline' ELSE 'harness' END,
               r.seq, r.pseq, r.after_seq, now(), r.phase, r.type, r.detail
        FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[])
            AS r (session_id, seq, pseq, after_seq, phase, type, detail)
        """,
        (
            workspace,
            [name for name, _ in rows],
            [row.seq for _, row in rows],
            [row.pseq for _, row in rows],
            [row.after_seq for _, row in rows],
            [row.phase for _, row in rows],
            [str(row.type) for _, row in rows],
            [row.detail for _, row in rows],
        ),
    )


def _statuses(tx: Transaction) -> list[dict[_Key, Status]]:
    """Status of each row, by session."""
    rows = tx.execute(
        """
        SELECT s.session_id, d.seq, d.pseq, d.status
        FROM sessions AS s CROSS JOIN LATERAL session_status(s.workspace, s.session_id) AS d
        ORDER BY s.session_id, d.pseq NULLS FIRST, d.seq
        """
    ).fetchall()
    found: dict[str, dict[_Key, Status]] = {}
    for row in rows:
        found.setdefault(row["session_id"], {})[_Key(row["seq"], row["pseq"])] = Status(row["status"])
    return list(found.values())
