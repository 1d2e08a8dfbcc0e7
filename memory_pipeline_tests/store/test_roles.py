"""What PostgreSQL itself grants each role and shows it, whatever the code above does. `test_writing` has the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from memory_pipeline.core.errors import RoleRefused
from memory_pipeline.operations.services import Services
from memory_pipeline.store.database import Database, Role
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
        "card_links": "S",
        "card_sources": "S",
        "collections": "S",
        "generations": "S",
        "projections": "S",
        "golden_queries": "S",
        "quality_figures": "S",
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
        "golden_queries": "S",
        "quality_figures": "IS",
        "tombstones": "DISU",
        "registry_epoch": "ISU",
        "repair_proposals": "IS",
        "repair_outcomes": "IS",
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
        "card_links": "DIS",
        "card_revisions": "IS",
        "card_sources": "IS",
        "import_quarantine": "IS",
        "repair_proposals": "S",
        "repair_outcomes": "S",
        "propagations": "IS",
        "collections": "S",
        "generations": "S",
        "projections": "S",
        "golden_queries": "ISu",
        "quality_figures": "Su",
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


# --- the monitor -------------------------------------------------------------------------------------------------

MONITOR_ANSWERS = {
    "monitor_workspaces": ["workspace", "status", "scratch"],
    "monitor_pending": ["workspace", "pending", "dead", "oldest"],
    "monitor_active_cards": ["workspace", "cards"],
    "monitor_upkeep": ["workspace", "removals", "collections", "oldest"],
    "monitor_due": ["workspace", "rows", "newest", "attempts", "oldest"],
    "monitor_health": [
        *("workspace", "status", "serving", "active", "current", "leftover"),
        *("pending", "parked", "oldest_pending", "oldest_behind"),
    ],
}
"""What each answers without being given anything."""

MONITOR_OTHERS = {
    "monitor_changes": ["since", "workspace", "parts", "oldest", "upto"],
    "monitor_prune": ["keep", "propagations", "changes"],
    "note_change": None,
}


def test_only_the_monitors_functions_run_with_rights_that_are_not_the_callers(services: Services) -> None:
    with services.database.transaction(Role.OWNER, None) as tx:
        rows = tx.execute(
            """
            SELECT proname, proowner::regrole::text AS owner, proconfig, proargnames
            FROM pg_proc WHERE pronamespace = 'memory'::regnamespace AND prosecdef
            """
        ).fetchall()
    assert {row["proname"]: row["proargnames"] for row in rows} == {**MONITOR_ANSWERS, **MONITOR_OTHERS}
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
    (health,) = answers["monitor_health"]
    assert (health["active"], health["pending"]) == (2, 2)


@each_role
def test_every_role_learns_which_parts_of_a_workspace_changed(services: Services, furnished: str, role: Role) -> None:
    with services.database.transaction(role, None) as tx:
        rows = tx.execute("SELECT * FROM monitor_changes('0')").fetchall()
    (changed,) = [row for row in rows if row["workspace"] == furnished]
    assert {"workspace", "ledger", "cards"} <= set(changed["parts"])


NOTE = "INSERT INTO changes (workspace, part) VALUES (current_workspace(), 'cards')"
FORGET = "SELECT FROM monitor_prune('1 day')"


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        *((role, NOTE) for role in Role if role is not Role.OWNER),
        *((role, FORGET) for role in Role if role is not Role.INDEXER),
    ],
)
def test_no_other_role_notes_a_change_by_hand_or_has_old_ones_forgotten(
    services: Services, furnished: str, role: Role, statement: str
) -> None:
    with (
        services.database.transaction(role, furnished) as tx,
        pytest.raises(errors.InsufficientPrivilege),
        tx.transaction(),
    ):
        tx.execute(statement)


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
