"""What only an administrator can do: roles, their passwords, and the two databases. Migrations never need one.

Safe to repeat: what exists is brought to the wanted state, a password that lies in its file is kept.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from typing import Any

import psycopg
from psycopg import Connection, sql

from memory_pipeline.core.errors import SecretsElsewhere
from memory_pipeline.settings import Settings
from memory_pipeline.store.database import Role, server_conninfo

MONITOR = "memory_monitor"
"""Owns the counting functions; cannot log in."""

DAGSTER_ROLE = "memory_dagster"
DAGSTER_DATABASE = "memory_dagster"

_LOCK = 0x626F6F74  # "boot"
_LIMITS = "NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"


def bootstrap(settings: Settings, *, reset_passwords: bool = False) -> None:
    """Create or repair roles, passwords and databases, as the administrator of the settings.

    Passwords are made here where their files are missing, and written so that only their owner reads them.

    Args:
        reset_passwords: give roles that exist new passwords where their files are missing.

    Raises:
        SecretsElsewhere: roles exist whose secrets are not here, and `reset_passwords` is not asked for.
        psycopg.OperationalError: the server cannot be reached or refuses the administrator.
        MissingSecret: no password for the administrator.
    """
    logins = [role.value for role in Role] + [DAGSTER_ROLE]
    with _connect(settings, "postgres") as admin:
        admin.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        lost = [login for login in logins if not (settings.secrets / login).exists() and _exists(admin, login)]
        if lost and not reset_passwords:
            raise SecretsElsewhere(lost, settings.secrets)
        passwords = {login: _password(settings, login) for login in logins}
        for login, password in passwords.items():
            _ensure_login(admin, login, password)
        _ensure_role(admin, MONITOR)
        # The owner makes functions and hands them to the monitor, without having the monitor's rights itself.
        admin.execute(f"GRANT {MONITOR} TO {Role.OWNER} WITH INHERIT FALSE, SET TRUE")
        _ensure_database(admin, settings.postgres_database, Role.OWNER)
        _ensure_database(admin, DAGSTER_DATABASE, DAGSTER_ROLE)
        # No login has business in the databases that every server comes with, where all of them could make things.
        admin.execute("REVOKE CONNECT, TEMPORARY ON DATABASE postgres, template1 FROM PUBLIC")


def _connect(settings: Settings, database: str) -> Connection[Any]:
    settings.require_servers("postgres_host")
    password = settings.secret(settings.postgres_admin).get_secret_value()
    conninfo = server_conninfo(settings, user=settings.postgres_admin, password=password, database=database)
    return psycopg.connect(conninfo, autocommit=True)


def _password(settings: Settings, login: str) -> str:
    """The password of a login, made on first use. The file appears whole or not at all, and is never replaced."""
    folder = settings.secrets
    path = folder / login
    if not path.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{login}.")  # readable by its owner alone
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
        with contextlib.suppress(FileExistsError):  # another process was first: its password counts
            os.link(temporary, path)
        os.unlink(temporary)
    return settings.secret(login).get_secret_value()


def _exists(admin: Connection[Any], role: str) -> bool:
    return admin.execute("SELECT FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is not None


def _ensure_login(admin: Connection[Any], login: str, password: str) -> None:
    _ensure_role(admin, login)
    admin.execute(sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(login), sql.Literal(password)))


def _ensure_role(admin: Connection[Any], name: str) -> None:
    verb = "ALTER ROLE" if _exists(admin, name) else "CREATE ROLE"
    admin.execute(sql.SQL(f"{verb} {{}} {_LIMITS}").format(sql.Identifier(name)))


def _ensure_database(admin: Connection[Any], name: str, owner: str) -> None:
    if admin.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
        admin.execute(
            sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE template0 ENCODING 'UTF8'").format(
                sql.Identifier(name), sql.Identifier(owner)
            )
        )
    admin.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(name)))
    if owner == Role.OWNER:
        for role in Role:
            admin.execute(
                sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {} TO {}").format(
                    sql.Identifier(name), sql.Identifier(role.value)
                )
            )
