"""`memory-pipeline up`, `down`, `status`, `bootstrap`, `migrate`."""

from __future__ import annotations

import os

import click
import psycopg

from memory_pipeline.core.errors import StoreUnavailable
from memory_pipeline.harness.output import print_table, say
from memory_pipeline.harness.setup import apply_migrations, start
from memory_pipeline.settings import Settings
from memory_pipeline.store.bootstrap import bootstrap

_OWN = {"postgres": "MEMORY_POSTGRES_HOST", "qdrant": "MEMORY_QDRANT_URL", "ollama": "MEMORY_OLLAMA_URL"}
"""The variable that names a server of your own in place of an embedded one."""


@click.command()
def up() -> None:
    """Start the embedded servers, and make roles, databases and tables.

    Safe to repeat: what runs is left alone. A server whose address is set in the environment is not started.
    """
    start(Settings(), say)
    _print_status()


@click.command()
@click.option("--purge", is_flag=True, help="Remove all data of the embedded stack too.")
def down(purge: bool) -> None:
    """Stop every embedded server of this state folder."""
    from memory_pipeline.embedded.stack import EmbeddedStack

    settings = Settings()
    EmbeddedStack(settings.state).down(purge=purge, say=say)
    if purge and any(settings.inbox_path.glob("*/*.jsonl")):
        say(f"the ledgers in {settings.inbox_path} are yours and stay: the next reading takes them from the start")


@click.command()
def status() -> None:
    """Show the embedded servers."""
    _print_status()


@click.command("bootstrap")
@click.option("--reset-passwords", is_flag=True, help="New passwords for roles whose secrets are missing.")
def bootstrap_command(reset_passwords: bool) -> None:
    """Make roles, passwords and databases on the PostgreSQL of the settings, as its administrator.

    Roles that exist keep their passwords: their secrets have to be here, or --reset-passwords is needed, which locks
    out every installation that has the old ones.

    `up` does this for the embedded server. The administrator's password is read from the secret named as its role
    (MEMORY_POSTGRES_ADMIN, postgres by default).
    """
    try:
        bootstrap(Settings(), reset_passwords=reset_passwords)
    except psycopg.OperationalError as error:
        raise StoreUnavailable(
            f"PostgreSQL is not available to its administrator: {error}",
            hint="check MEMORY_POSTGRES_HOST, MEMORY_POSTGRES_PORT, MEMORY_POSTGRES_ADMIN and that login's secret",
        ) from error
    click.echo("roles and databases are in place")


@click.command("migrate")
def migrate_command() -> None:
    """Apply what is missing of the schema, as the owner."""
    applied = apply_migrations(Settings())
    click.echo("applied " + ", ".join(applied) if applied else "the schema is current")


def _print_status() -> None:
    from memory_pipeline.embedded.stack import EmbeddedStack

    servers = EmbeddedStack(Settings().state).status().servers
    print_table(
        "embedded servers",
        ("server", "state", "address", "pid", "log"),
        [
            (server.name, server.state, server.url if server.state == "running" else "", server.pid, server.log)
            for server in servers
            if server.state == "running" or _OWN[server.name] not in os.environ
        ],
    )
    if any(server.state != "running" and _OWN[server.name] not in os.environ for server in servers):
        say("not every server runs: run memory-pipeline up")
    for name in _OWN.values():
        if name in os.environ:
            say(f"{name}={os.environ[name]}: that server is yours, and the embedded one is not used")
