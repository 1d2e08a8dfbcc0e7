"""What PostgreSQL itself lets each role write: ledger, cards and their history, whatever the code above it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg
import pytest
from psycopg import Rollback, errors

from memory_pipeline.core.errors import RoleRefused
from memory_pipeline.operations.services import Services
from memory_pipeline.store.database import Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.store.scenes import furnished_workspace
from memory_pipeline_tests.store.test_roles import GRANTS

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def furnished(services: Services) -> Iterator[str]:
    """A workspace with rows in every table. What a test here writes is refused or rolled back."""
    with furnished_workspace(services) as slug:
        yield slug


# --- the ledger --------------------------------------------------------------------------------------------------

APPEND_ONLY = ["ledger_entries", "ledger_resets", "card_revisions", "card_sources", "preview_candidates"]


@pytest.mark.parametrize("role", GRANTS)
@pytest.mark.parametrize("table", APPEND_ONLY)
@pytest.mark.parametrize("verb", ["UPDATE {} SET workspace = workspace", "DELETE FROM {}", "TRUNCATE {}"])
def test_no_role_rewrites_history(services: Services, furnished: str, role: Role, table: str, verb: str) -> None:
    with pytest.raises(RoleRefused), services.database.transaction(role, furnished) as tx:
        tx.execute(verb.format(table))


@pytest.mark.parametrize("table", APPEND_ONLY)
@pytest.mark.parametrize("verb", ["UPDATE {} SET workspace = workspace", "DELETE FROM {}", "TRUNCATE {}"])
def test_not_even_the_owner_rewrites_history(services: Services, furnished: str, table: str, verb: str) -> None:
    refused = pytest.raises(errors.RestrictViolation, match=f"{table} is append-only")
    with refused, services.database.transaction(Role.OWNER, furnished) as tx:
        tx.execute(verb.format(table))


def test_a_purge_that_is_on_record_may_delete_and_still_not_change(services: Services, furnished: str) -> None:
    with services.database.transaction(Role.OWNER, furnished) as tx:
        tx.execute("INSERT INTO purges (workspace, reason) VALUES (%s, 'asked for in writing')", (furnished,))
        assert tx.execute("DELETE FROM preview_candidates").rowcount == 2
        raise Rollback
    with services.database.transaction(Role.OWNER, furnished) as tx:
        tx.execute("INSERT INTO purges (workspace, reason) VALUES (%s, 'asked for in writing')", (furnished,))
        with pytest.raises(errors.RestrictViolation), tx.transaction():
            tx.execute("UPDATE ledger_entries SET detail = ''")
        raise Rollback
    with services.database.transaction(Role.OWNER, furnished) as tx:
        tx.execute("INSERT INTO purges (workspace, reason, finished_at) VALUES (%s, 'long ago', now())", (furnished,))
        with pytest.raises(errors.RestrictViolation), tx.transaction():
            tx.execute("DELETE FROM ledger_entries")
        raise Rollback


ENTRY = """
INSERT INTO ledger_entries (workspace, session_id, origin, seq, pseq, after_seq, ts, type, detail, recorded_by)
VALUES (%(workspace)s, 's1', %(origin)s, %(seq)s, %(pseq)s, %(pseq)s, now(), %(type)s, 'seq:1',
        coalesce(%(recorded_by)s, session_user))
"""
OWN_ROW = {"origin": "harness", "seq": 90, "pseq": None, "type": "concept_clarified", "recorded_by": None}
MARKER = {"origin": "pipeline", "seq": None, "pseq": 90, "type": "memory_promoted", "recorded_by": None}


@pytest.mark.parametrize(("role", "row"), [(Role.HARNESS, OWN_ROW), (Role.REVIEWER, MARKER)])
def test_the_rows_of_ones_own_task_are_taken(
    services: Services, furnished: str, role: Role, row: Mapping[str, object]
) -> None:
    with services.database.transaction(role, furnished) as tx:
        assert tx.execute(ENTRY, {"workspace": furnished, **row}).rowcount == 1
        raise Rollback


@pytest.mark.parametrize(
    ("role", "row"),
    [
        pytest.param(Role.HARNESS, MARKER, id="the harness writes no marker"),
        pytest.param(Role.READER, MARKER, id="nor does the reader"),
        pytest.param(Role.INDEXER, MARKER, id="nor does the indexer"),
        pytest.param(Role.REVIEWER, OWN_ROW, id="the reviewer writes no decision"),
        pytest.param(Role.READER, OWN_ROW, id="nor does the reader, one"),
        pytest.param(Role.INDEXER, OWN_ROW, id="nor does the indexer, one"),
        pytest.param(Role.HARNESS, {**OWN_ROW, "recorded_by": "memory_reviewer"}, id="the harness signs as itself"),
        pytest.param(Role.REVIEWER, {**MARKER, "recorded_by": "memory_owner"}, id="the reviewer signs as itself"),
    ],
)
def test_a_row_of_another_task_or_under_another_name_is_refused(
    services: Services, furnished: str, role: Role, row: Mapping[str, object]
) -> None:
    with pytest.raises(RoleRefused), services.database.transaction(role, furnished) as tx:
        tx.execute(ENTRY, {"workspace": furnished, **row})


@pytest.mark.parametrize(
    "row",
    [
        pytest.param({**MARKER, "type": "concept_clarified"}, id="a decision by the pipeline"),
        pytest.param({**MARKER, "seq": 91}, id="a row of the pipeline with the harness's number"),
        pytest.param({**OWN_ROW, "pseq": 91}, id="a row of the harness with the pipeline's number"),
        pytest.param({**OWN_ROW, "seq": None}, id="a row without a number"),
        pytest.param({**OWN_ROW, "seq": 0}, id="a number below one"),
        pytest.param({**OWN_ROW, "origin": "import"}, id="an unknown origin"),
    ],
)
def test_a_row_that_cannot_be_is_refused_to_whoever_may_write_its_like(
    services: Services, furnished: str, row: Mapping[str, object]
) -> None:
    role = Role.REVIEWER if row["origin"] == "pipeline" else Role.OWNER
    with pytest.raises(errors.CheckViolation), services.database.transaction(role, furnished) as tx:
        tx.execute(ENTRY, {"workspace": furnished, **row})


@pytest.mark.parametrize("row", [{**OWN_ROW, "seq": 1}, {**MARKER, "pseq": 1}])
def test_a_number_is_used_once_in_a_session(services: Services, furnished: str, row: Mapping[str, object]) -> None:
    role = Role.REVIEWER if row["origin"] == "pipeline" else Role.OWNER
    with pytest.raises(errors.UniqueViolation), services.database.transaction(role, furnished) as tx:
        tx.execute(ENTRY, {"workspace": furnished, **row})


def test_a_preview_is_made_under_the_name_of_the_harness(services: Services, furnished: str) -> None:
    statement = "INSERT INTO previews (workspace, session_id, ledger_seq, created_by) VALUES (%s, 's1', 1, %s)"
    with pytest.raises(RoleRefused), services.database.transaction(Role.HARNESS, furnished) as tx:
        tx.execute(statement, (furnished, "memory_reviewer"))


# --- cards -------------------------------------------------------------------------------------------------------

CARD = """
INSERT INTO cards (workspace, card_id, number, kind, type, subject, detail, rationale, question_context, scope,
                   concepts, tables, dependencies, links, fingerprint, dependencies_sha256, scope_sha256,
                   created_by, updated_by)
VALUES (%(workspace)s, 'mem-0090', 90, %(kind)s, %(type)s, 'x', '', '', '', '{}', '{}', '{}', '[]', '[]',
        %(fingerprint)s, repeat('0', 64), repeat('0', 64), coalesce(%(by)s, session_user), session_user)
"""
NEW_CARD = {"kind": "memory", "type": "concept_clarified", "fingerprint": "9" * 64, "by": None}


def test_the_reviewer_adds_cards(services: Services, furnished: str) -> None:
    with services.database.transaction(Role.REVIEWER, furnished) as tx:
        assert tx.execute(CARD, {"workspace": furnished, **NEW_CARD}).rowcount == 1
        raise Rollback


@pytest.mark.parametrize("role", [Role.HARNESS, Role.READER, Role.INDEXER])
@pytest.mark.parametrize("statement", [CARD, "UPDATE cards SET detail = ''", "DELETE FROM cards", "TRUNCATE cards"])
def test_no_other_role_touches_cards(services: Services, furnished: str, role: Role, statement: str) -> None:
    with pytest.raises(RoleRefused), services.database.transaction(role, furnished) as tx:
        tx.execute(statement, {"workspace": furnished, **NEW_CARD})


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("DELETE FROM cards", id="cards are never deleted by row"),
        pytest.param("UPDATE cards SET updated_by = 'rossi', revision = revision + 1", id="signed by another"),
        pytest.param("UPDATE cards SET created_by = 'rossi', revision = revision + 1", id="whose work it was"),
        pytest.param("UPDATE cards SET created_at = 'epoch', revision = revision + 1", id="when it was made"),
        pytest.param("UPDATE cards SET card_id = 'mem-0080', revision = revision + 1", id="its id"),
        pytest.param("UPDATE propagations SET state = 'done'", id="settling the outbox"),
        pytest.param(
            "INSERT INTO card_sources (workspace, card_id, provenance, decided_by)"
            " VALUES (%(workspace)s, 'mem-0001', 'curation', 'rossi')",
            id="a source decided by another",
        ),
        pytest.param(
            "INSERT INTO card_revisions (workspace, card_id, revision, card, revised_by)"
            " VALUES (%(workspace)s, 'mem-0001', 9, '{}', 'rossi')",
            id="a revision by another",
        ),
        pytest.param(
            "INSERT INTO propagations (workspace, card_id, revision, state)"
            " VALUES (%(workspace)s, 'mem-0001', 1, 'done')",
            id="a change that nobody needs to follow",
        ),
    ],
)
def test_the_reviewer_may_not(services: Services, furnished: str, statement: str) -> None:
    with pytest.raises(RoleRefused), services.database.transaction(Role.REVIEWER, furnished) as tx:
        tx.execute(statement, {"workspace": furnished})


def test_a_card_is_made_under_the_name_of_its_reviewer(services: Services, furnished: str) -> None:
    with pytest.raises(RoleRefused), services.database.transaction(Role.REVIEWER, furnished) as tx:
        tx.execute(CARD, {"workspace": furnished, **NEW_CARD, "by": "rossi"})


@pytest.mark.parametrize("type_", ["table_promoted", "table_excluded", "column_promoted", "exemplar", ""])
def test_a_memory_of_a_type_that_is_not_reusable_is_refused_even_to_the_owner(
    services: Services, furnished: str, type_: str
) -> None:
    refused = pytest.raises(errors.CheckViolation, match="memories_are_clarified_concepts")
    with refused, services.database.transaction(Role.REVIEWER, furnished) as tx:
        tx.execute(CARD, {"workspace": furnished, **NEW_CARD, "type": type_})
    with refused, services.database.transaction(Role.OWNER, furnished) as tx:
        tx.execute("UPDATE cards SET type = %s, revision = revision + 1", (type_,))


@pytest.mark.parametrize("kind", ["exemplar", "evidence"])
def test_no_other_kind_poses_as_a_clarified_concept(services: Services, furnished: str, kind: str) -> None:
    refused = pytest.raises(errors.CheckViolation, match="other_kinds_have_types_of_their_own")
    with refused, services.database.transaction(Role.REVIEWER, furnished) as tx:
        tx.execute(CARD, {"workspace": furnished, **NEW_CARD, "kind": kind})


def test_an_existing_card_cannot_become_a_memory_of_another_type(services: Services, furnished: str) -> None:
    with pytest.raises(errors.CheckViolation), services.database.transaction(Role.REVIEWER, furnished) as tx:
        tx.execute("UPDATE cards SET type = 'table_promoted', revision = revision + 1")


def test_one_active_memory_for_one_text_place_and_scope(services: Services, furnished: str) -> None:
    with services.database.transaction(Role.REVIEWER, furnished) as tx:
        tx.execute(CARD, {"workspace": furnished, **NEW_CARD})
        again = CARD.replace("'mem-0090', 90", "'mem-0091', 91")
        with pytest.raises(errors.UniqueViolation, match="cards_one_active_memory"), tx.transaction():
            tx.execute(again, {"workspace": furnished, **NEW_CARD})
        tx.execute("UPDATE cards SET status = 'deleted', revision = 2 WHERE number = 90")
        assert tx.execute(again, {"workspace": furnished, **NEW_CARD}).rowcount == 1
        raise Rollback


@pytest.mark.parametrize("step", [0, 2])
def test_a_change_of_a_card_is_a_new_revision_of_the_one_that_was_read(
    services: Services, furnished: str, step: int
) -> None:
    """`serialization_failure`, and not an outage: whoever made the change on an older revision reads again."""
    with pytest.raises(errors.SerializationFailure), services.database.transaction(Role.REVIEWER, furnished) as tx:
        tx.execute("UPDATE cards SET detail = 'x', revision = revision + %s", (step,))


def test_revisions_and_outbox_cannot_be_diverted_to_tables_of_ones_own(services: Services, furnished: str) -> None:
    with psycopg.connect(services.database.conninfo(Role.REVIEWER)) as connection:
        connection.execute("SELECT set_config('memory.workspace', %s, true)", (furnished,))
        connection.execute("CREATE TEMPORARY TABLE card_revisions (LIKE memory.card_revisions INCLUDING DEFAULTS)")
        connection.execute("CREATE TEMPORARY TABLE propagations (LIKE memory.propagations INCLUDING ALL)")
        connection.execute("SET LOCAL search_path = pg_temp, memory")
        connection.execute("UPDATE memory.cards SET detail = 'x', revision = 2 WHERE number = 1")
        kept = connection.execute("SELECT FROM memory.card_revisions WHERE card_id = 'mem-0001'").fetchall()
        queued = connection.execute("SELECT FROM memory.propagations WHERE card_id = 'mem-0001'").fetchall()
        connection.rollback()
    assert (len(kept), len(queued)) == (2, 2)


@pytest.mark.parametrize("statement", ["DELETE FROM purges", "UPDATE purges SET reason = 'none'", "TRUNCATE purges"])
def test_the_trace_of_a_purge_stays(services: Services, make_workspace: MakeWorkspace, statement: str) -> None:
    slug = make_workspace().slug
    with services.database.transaction(Role.OWNER, slug) as tx:
        tx.execute("INSERT INTO purges (workspace, reason) VALUES (%s, 'asked for in writing')", (slug,))
        tx.execute("UPDATE purges SET finished_at = now()")

    with (
        pytest.raises(psycopg.errors.RestrictViolation, match="append-only"),
        services.database.transaction(Role.OWNER, slug) as tx,
    ):
        tx.execute(statement)
