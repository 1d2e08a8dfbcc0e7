"""The command line: `memory-pipeline`.

Commands are loaded when they are called, so that a search never waits for what only `dev` needs. With `--json`,
standard output holds the answer and nothing else; every message goes to standard error.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Any

import click
from pydantic import ValidationError

from memory_pipeline.core.errors import ConfigurationError, MemoryPipelineError
from memory_pipeline.harness.output import print_error, print_usage_error
from memory_pipeline.harness.streams import answered, open_streams
from memory_pipeline.settings import Settings

_COMMANDS = {
    "up": "stack:up",
    "down": "stack:down",
    "status": "stack:status",
    "bootstrap": "stack:bootstrap_command",
    "migrate": "stack:migrate_command",
    "dev": "dev:dev",
    "service": "service:service",
    "doctor": "doctor:doctor",
    "demo": "demo:demo",
    "workspace": "workspace:workspace",
    "ledger": "ledger:ledger",
    "promote": "promote:promote",
    "session": "session:session",
    "search": "search:search",
    "index": "index:index_command",
    "propagation": "propagation:propagation",
    "consistency": "consistency:consistency_command",
    "reconcile": "reconcile:reconcile_command",
    "repairs": "repairs:repairs",
    "cards": "cards:cards",
    "registry": "registry:registry",
    "audit": "audit:audit_command",
    "evaluate": "evaluate:evaluate_command",
    "golden": "golden:golden",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(
            importlib.import_module(f"memory_pipeline.harness.commands.{module}"), attribute
        )
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="memory-pipeline")
def cli() -> None:
    """Keeps the reusable knowledge of a text-to-SQL assistant.

    Exit codes: 0 done, 1 a defect of this program, 2 wrong usage, 10 bad input, 11 not found, 12 conflict, 13 refused,
    14 done, answer lost, 20 configuration, 30 PostgreSQL, 31 Qdrant, 32 embedder, 40 embedded stack,
    50 index incomplete, 51 drift, 60 Dagster, 130 stopped.
    """


def _bad_setting(error: ValidationError) -> ConfigurationError:
    """A variable of the environment, or a value of the stack file, that cannot be."""
    first = error.errors(include_url=False, include_input=False)[0]
    name = "_".join(str(part) for part in first["loc"]).upper()
    return ConfigurationError(f"MEMORY_{name}: {first['msg']}", hint="correct the variable, or run memory-pipeline up")


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with the code of what came of it."""
    open_streams()
    _forget_other_servers()
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(answered(lambda: _run(given)))


def _forget_other_servers() -> None:
    """Take PostgreSQL's own variables, which lead its drivers elsewhere (PGSERVICE, PGHOSTADDR), from this process.

    Where the registry is, MEMORY_POSTGRES_* say. Certificates and keys of the login are left.
    """
    for name in [name for name in os.environ if name.startswith("PG")]:
        if not name.startswith(("PGSSL", "PGGSS", "PGKRB")):
            del os.environ[name]


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # what it meets is raised, and told once
    try:
        code: Any = cli.main(arguments, prog_name="memory-pipeline", standalone_mode=False)
    except ValidationError as error:
        if error.title != Settings.__name__:
            raise
        refused = _bad_setting(error)
        print_error(refused, as_json=as_json)
        return refused.exit_code
    except MemoryPipelineError as error:
        print_error(error, as_json=as_json)
        return error.exit_code
    except click.ClickException as error:
        if as_json:
            print_usage_error(error)
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    return code if isinstance(code, int) else 0
