"""What PostgreSQL itself refuses to each role, whatever the code above it does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import psycopg
import pytest
from psycopg import Rollback, errors
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from memory_pipeline.core.errors import RoleRefused
from memory_pipeline.operations.services import Services
from memory_pipeline.store.database import Database, Role
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.store.scenes import furnished_workspace, scalar

pytestmark = pytest.mark.integration

each_role = pytest.mark.parametrize("role", Role)
MONITOR = "memory_monitor"


@pytest.fixture(scope="module")
def furnished(services: Services) -> Iterator[str]:
    """A workspace with rows in every table. What a test here writes is refused or rolled back."""
    with furnished_workspace(services) as slug:
        yield slug


@pytest.fixture(scope="module")
def other(services: Services) -> Iterator[str]:
    """Another one, with the same rows."""
    with furnished_workspace(services) as slug:
        yield slug


@pytest.fixture
def tables(services: Services) -> list[str]:
    """Every table of the registry that holds a workspace's rows, as the catalogue knows them."""
    with services.database.transaction(Role.OWNER, None) as tx:
        rows = tx.execute(
            """
            SELECT c.relname FROM pg_class AS c
            JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = 'workspace' AND NOT a.attisdropped
            WHERE c.relnamespace = 'memory'::regnamespace AND c.relkind IN ('r', 'p', 'm')
            """
        ).fetchall()
    return sorted(row["relname"] for row in rows)


# --- what is granted ---------------------------------------------------------------------------------------------

GRANTS: Mapping[Role, Mapping[str, str]] = {
    Role.HARNESS: {
        "workspaces": "S",
        "sessions": "IS",
        "ledger_entries": "IS",
        "ledger_files": "ISu",
        "ledger_resets": "S",
        "ledger_quarantine": "IS",
        "previews": "IS",
        "preview_candidates": "IS",
        "cards": "S",
        "card_sources": "S",
        "collections": "S",
        "generations": "S",
        "projections": "S",
    },
    Role.READER: {
        "workspaces": "S",
        "sessions": "S",
        "ledger_entries": "S",
        "cards": "S",
        "card_sources": "S",
        "collections": "S",
        "generations": "S",
        "projections": "S",
    },
    Role.INDEXER: {
        "workspaces": "S",
        "sessions": "S",
        "ledger_entries": "S",
        "ledger_quarantine": "S",
        "cards": "S",
        "card_sources": "S",
        "import_quarantine": "S",
        "propagations": "ISu",
        "collections": "DISU",
        "dense_embeddings": "DISU",
        "generations": "DISU",
        "projections": "DISU",
        "sparse_embeddings": "DISU",
    },
    Role.REVIEWER: {
        "workspaces": "S",
        "workspace_changes": "S",
        "purges": "S",
        "sessions": "S",
        "ledger_entries": "IS",
        "ledger_resets": "S",
        "previews": "S",
        "preview_candidates": "S",
        "cards": "ISu",
        "card_revisions": "IS",
        "card_sources": "IS",
        "import_quarantine": "IS",
        "propagations": "IS",
        "collections": "S",
        "generations": "S",
        "projections": "S",
    },
}
"""S select, I insert, U update, u update of some columns, D delete, T truncate."""


@pytest.mark.parametrize("role", GRANTS)
def test_a_role_may_do_what_its_task_needs_and_no_more(services: Services, tables: list[str], role: Role) -> None:
    with services.database.transaction(Role.OWNER, None) as tx:
        rows = tx.execute(
            """
            SELECT t.name, concat(
                CASE WHEN has_table_privilege(%(role)s, t.oid, 'DELETE') THEN 'D' END,
                CASE WHEN has_table_privilege(%(role)s, t.oid, 'INSERT') THEN 'I' END,
                CASE WHEN has_table_privilege(%(role)s, t.oid, 'SELECT') THEN 'S' END,
                CASE WHEN has_table_privilege(%(role)s, t.oid, 'TRUNCATE') THEN 'T' END,
                CASE WHEN has_table_privilege(%(role)s, t.oid, 'UPDATE') THEN 'U'
                     WHEN has_any_column_privilege(%(role)s, t.oid, 'UPDATE') THEN 'u' END
            ) AS granted
            FROM (SELECT name, ('memory.' || name)::regclass AS oid FROM unnest(%(tables)s::text[]) AS name) AS t
            """,
            {"role": role.value, "tables": tables},
        ).fetchall()
    assert {row["name"]: row["granted"] for row in rows if row["granted"]} == GRANTS[role]


def test_no_role_can_pass_by_row_level_security_or_make_others(services: Services) -> None:
    with services.database.transaction(Role.OWNER, None) as tx:
        rows = tx.execute(
            """
            SELECT rolname, rolcanlogin FROM pg_roles
            WHERE rolname LIKE 'memory\\_%'
                AND NOT (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolreplication)
            """
        ).fetchall()
    logins = {row["rolname"]: row["rolcanlogin"] for row in rows}
    assert logins.items() >= {**dict.fromkeys(map(str, Role), True), MONITOR: False}.items()


def test_no_role_has_the_rights_of_another(services: Services) -> None:
    """The owner may hand functions to the monitor; it does not have the monitor's rights itself."""
    with services.database.transaction(Role.OWNER, None) as tx:
        rows = tx.execute(
            """
            SELECT roleid::regrole::text AS role, member::regrole::text AS member, inherit_option
            FROM pg_auth_members WHERE member::regrole::text LIKE 'memory\\_%'
            """
        ).fetchall()
    assert [(row["role"], row["member"], row["inherit_option"]) for row in rows] == [(MONITOR, Role.OWNER, False)]


@pytest.mark.parametrize("role", [*GRANTS, MONITOR])
def test_nobody_but_the_owner_may_create_in_the_schema(services: Services, role: str) -> None:
    query = "SELECT has_schema_privilege(%s, 'memory', 'CREATE')"
    assert scalar(services.database, Role.OWNER, None, query, str(role)) is False


def test_dagsters_own_login_has_no_way_into_the_registry(services: Services) -> None:
    query = "SELECT has_database_privilege('memory_dagster', current_database(), 'CONNECT')"
    assert scalar(services.database, Role.OWNER, None, query) is False


# --- row-level security ------------------------------------------------------------------------------------------


def test_every_table_of_the_schema_holds_a_workspaces_rows_or_none(services: Services, tables: list[str]) -> None:
    query = "SELECT array_agg(relname) FROM pg_class WHERE relnamespace = 'memory'::regnamespace AND relkind = 'r'"
    every = scalar(services.database, Role.OWNER, None, query)
    assert sorted(every) == sorted([*tables, "schema_migrations"])


def test_row_level_security_is_forced_on_every_table_with_a_workspace(services: Services, tables: list[str]) -> None:
    with services.database.transaction(Role.OWNER, None) as tx:
        rows = tx.execute(
            """
            SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity AS forced,
                   p.polname IS NOT NULL AS fenced,
                   ARRAY(SELECT unnest(p.polroles)::regrole::text ORDER BY 1) AS roles
            FROM pg_class AS c
            LEFT JOIN pg_policy AS p ON p.polrelid = c.oid AND NOT p.polpermissive AND p.polcmd = '*'
                AND pg_get_expr(p.polqual, c.oid) = '(workspace = current_workspace())'
                AND pg_get_expr(p.polwithcheck, c.oid) = '(workspace = current_workspace())'
            WHERE c.relnamespace = 'memory'::regnamespace AND c.relname = ANY (%s)
            """,
            (tables,),
        ).fetchall()
    assert {row["relname"] for row in rows} == set(tables)
    assert [row["relname"] for row in rows if not (row["forced"] and row["fenced"])] == []
    assert [row["relname"] for row in rows if row["roles"] != sorted(map(str, Role))] == []


def test_every_view_runs_with_the_rights_of_its_reader(services: Services) -> None:
    with services.database.transaction(Role.OWNER, None) as tx:
        rows = tx.execute(
            "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'memory'::regnamespace AND relkind = 'v'"
        ).fetchall()
    assert [row["relname"] for row in rows if "security_invoker=true" not in (row["reloptions"] or [])] == []


@each_role
def test_a_workspace_never_sees_another(
    services: Services, furnished: str, other: str, tables: list[str], role: Role
) -> None:
    assert furnished != other
    with services.database.transaction(role, other) as tx:
        seen = {name: tx.execute(_workspaces_in(name)).fetchall() for name in _readable(role, tables)}
    assert {name: [row["workspace"] for row in rows] for name, rows in seen.items()} == {
        name: [] if name == "purges" else [other] for name in seen
    }


@each_role
@pytest.mark.parametrize("unset", [None, "", "no-such-workspace"])
@pytest.mark.usefixtures("furnished")
def test_without_a_workspace_nothing_is_seen(
    services: Services, tables: list[str], role: Role, unset: str | None
) -> None:
    with services.database.transaction(role, unset) as tx:
        seen = {name: tx.execute(_workspaces_in(name)).fetchall() for name in _readable(role, tables)}
    assert seen == {name: [] for name in _readable(role, tables)}


@each_role
@pytest.mark.usefixtures("furnished")
def test_a_connection_that_never_set_a_workspace_sees_nothing(
    services: Services, tables: list[str], role: Role
) -> None:
    with psycopg.connect(services.database.conninfo(role), row_factory=dict_row) as connection:
        seen = [row for name in _readable(role, tables) for row in connection.execute(_workspaces_in(name))]
    assert seen == []


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        (Role.OWNER, "INSERT INTO sessions (workspace, session_id, door) VALUES (%(other)s, 's9', 'append')"),
        (Role.HARNESS, "INSERT INTO sessions (workspace, session_id, door) VALUES (%(other)s, 's9', 'append')"),
        (Role.INDEXER, "UPDATE dense_embeddings SET workspace = %(other)s"),
        (
            Role.REVIEWER,
            "INSERT INTO propagations (workspace, card_id, revision) VALUES (%(other)s, 'mem-0001', 1)",
        ),
    ],
)
def test_nothing_is_written_into_another_workspace(
    services: Services, furnished: str, other: str, role: Role, statement: str
) -> None:
    with pytest.raises(RoleRefused, match="row-level security"), services.database.transaction(role, furnished) as tx:
        tx.execute(statement, {"other": other})


@each_role
def test_a_pooled_connection_carries_no_workspace_into_the_next_transaction(
    services: Services, furnished: str, other: str, role: Role
) -> None:
    peek = "SELECT pg_backend_pid() AS pid, array(SELECT workspace FROM workspaces) AS seen"
    seen = []
    with Database(services.settings) as database:  # a pool of its own: one connection, used again and again
        for workspace in (furnished, None, other, None):
            with database.transaction(role, workspace) as tx:
                seen.append(tx.execute(peek).fetchone())
    assert [row and row["seen"] for row in seen] == [[furnished], [], [other], []]
    assert len({row and row["pid"] for row in seen}) == 1  # or it proves nothing


@pytest.mark.parametrize("end", ["a failed transaction", "a setting of the whole connection"])
def test_nor_after(services: Services, furnished: str, end: str) -> None:
    pids = []
    with Database(services.settings) as database:
        with contextlib.suppress(errors.DivisionByZero), database.transaction(Role.READER, furnished) as tx:
            pids.append(tx.info.backend_pid)
            if end == "a failed transaction":
                tx.execute("SELECT 1 / 0")
            tx.execute("SELECT set_config('memory.workspace', %s, false)", (furnished,))
        with database.transaction(Role.READER, None) as tx:
            pids.append(tx.info.backend_pid)
            assert tx.execute("SELECT FROM workspaces").fetchall() == []
    assert len(set(pids)) == 1


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


# --- the monitor -------------------------------------------------------------------------------------------------

MONITOR_ANSWERS = {
    "monitor_workspaces": ["workspace", "status", "scratch"],
    "monitor_pending": ["workspace", "pending", "dead", "oldest"],
    "monitor_active_cards": ["workspace", "cards"],
}


def test_only_the_monitors_functions_run_with_rights_that_are_not_the_callers(services: Services) -> None:
    with services.database.transaction(Role.OWNER, None) as tx:
        rows = tx.execute(
            """
            SELECT proname, proowner::regrole::text AS owner, proconfig, proargnames
            FROM pg_proc WHERE pronamespace = 'memory'::regnamespace AND prosecdef
            """
        ).fetchall()
    assert {row["proname"]: row["proargnames"] for row in rows} == MONITOR_ANSWERS
    assert {row["owner"] for row in rows} == {MONITOR}
    assert {tuple(row["proconfig"]) for row in rows} == {("search_path=memory, pg_temp",)}


@each_role
def test_every_role_learns_of_all_workspaces_only_names_counts_and_ages(
    services: Services, furnished: str, role: Role
) -> None:
    with services.database.transaction(role, None) as tx:
        answers = {
            name: [row for row in tx.execute(f"SELECT * FROM {name}()") if row["workspace"] == furnished]  # noqa: S608
            for name in MONITOR_ANSWERS
        }
    assert answers["monitor_workspaces"] == [{"workspace": furnished, "status": "active", "scratch": False}]
    assert answers["monitor_active_cards"] == [{"workspace": furnished, "cards": 2}]
    (pending,) = answers["monitor_pending"]
    assert (pending["pending"], pending["dead"], pending["oldest"] is not None) == (2, 0, True)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT subject FROM cards",
        "SELECT title FROM workspaces",
        "SELECT last_error FROM propagations",
        "SELECT FROM ledger_entries",
        "SELECT FROM card_revisions",
        "SELECT FROM ledger_quarantine",
    ],
)
def test_the_monitor_itself_reads_no_content(services: Services, furnished: str, query: str) -> None:
    with services.database.transaction(Role.OWNER, furnished) as tx:
        tx.execute("SET LOCAL ROLE memory_monitor")
        with pytest.raises(errors.InsufficientPrivilege), tx.transaction():
            tx.execute(query)


@pytest.mark.parametrize("role", Role)
def test_no_role_logs_in_with_another_password(services: Services, role: Role) -> None:
    conninfo = make_conninfo(services.database.conninfo(role), password="another")  # noqa: S106
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(conninfo)


def test_the_monitor_cannot_log_in_with_any(services: Services) -> None:
    """PostgreSQL says the same of a role without a password; that it may not log in at all is in its catalogue."""
    conninfo = make_conninfo(services.database.conninfo(Role.OWNER), user=MONITOR)
    with pytest.raises(psycopg.OperationalError, match=MONITOR):
        psycopg.connect(conninfo)


# --- helpers -----------------------------------------------------------------------------------------------------


def _workspaces_in(table: str) -> str:
    return f"SELECT DISTINCT workspace FROM {table}"  # noqa: S608


def _readable(role: Role, tables: list[str]) -> list[str]:
    return tables if role is Role.OWNER else [name for name in tables if "S" in GRANTS[role].get(name, "")]


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
