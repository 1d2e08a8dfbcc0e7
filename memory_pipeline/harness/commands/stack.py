"""`memory-pipeline up`, `down`, `status`, `bootstrap`, `migrate`."""

from __future__ import annotations

import os

import click

from memory_pipeline.harness.output import print_table, say
from memory_pipeline.harness.setup import apply_migrations, start
from memory_pipeline.settings import Settings
from memory_pipeline.store.bootstrap import bootstrap


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

    EmbeddedStack(Settings().state).down(purge=purge, say=say)


@click.command()
def status() -> None:
    """Show the embedded servers."""
    _print_status()


@click.command("bootstrap")
def bootstrap_command() -> None:
    """Make roles, passwords and databases on the PostgreSQL of the settings, as its administrator.

    `up` does this for the embedded server. The administrator's password is read from the secret named as its role
    (MEMORY_POSTGRES_ADMIN, postgres by default).
    """
    bootstrap(Settings())
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
        [(server.name, server.state, server.url, server.pid, server.log) for server in servers],
    )
    for name in ("MEMORY_POSTGRES_HOST", "MEMORY_QDRANT_URL", "MEMORY_OLLAMA_URL"):
        if name in os.environ:
            say(f"{name} is set: that server is yours, not the embedded one")
