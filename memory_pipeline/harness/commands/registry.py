"""`memory-pipeline registry`: files of cards."""

from __future__ import annotations

from pathlib import Path

import click

from memory_pipeline.core.display import counted
from memory_pipeline.harness.contract import RegistryExportAnswer, RegistryImportAnswer, import_answer
from memory_pipeline.harness.options import json_option, open_services, resolve_workspace, workspace_options
from memory_pipeline.harness.output import print_json, print_table, say
from memory_pipeline.operations.propagate import propagate_at_once
from memory_pipeline.operations.registry import export_registry
from memory_pipeline.operations.registry_import import apply_import, review_import

_FILE = click.Path(path_type=Path)


@click.group()
def registry() -> None:
    """Write a workspace's cards to a file, and take cards in from one."""


@registry.command("export")
@workspace_options
@click.option("--output", "file", type=_FILE, required=True, help="The file to write, registry.jsonl by custom.")
@json_option
def export_command(slug: str | None, config: Path | None, file: Path, as_json: bool) -> None:
    """Write every card but the deleted ones, one JSON object a line. Only you may read the file."""
    with open_services() as services:
        written = export_registry(services, resolve_workspace(slug, config), file)
    if as_json:
        print_json(RegistryExportAnswer(**dict(written)))
    else:
        click.echo(f"{written.file}: {counted(written.cards, 'card')}, {written.bytes} bytes, sha256 {written.sha256}")


@registry.command("import")
@workspace_options
@click.argument("file", type=_FILE)
@click.option("--apply", "apply", is_flag=True, help="Import what was reviewed. Without it nothing is written.")
@click.option("--expect", metavar="TOKEN", help="With --apply: the token that the dry run printed.")
@json_option
def import_command(
    slug: str | None, config: Path | None, file: Path, apply: bool, expect: str | None, as_json: bool
) -> None:
    """Take in the memories of a registry file, as the reviewer: look at the dry run first, then apply it.

    Only clarified concepts are taken. Every other line is told with its reason and, once applied, kept in quarantine.
    """
    if apply is (expect is None):
        raise click.UsageError("--apply goes with --expect TOKEN: the token that the dry run printed")
    workspace = resolve_workspace(slug, config)
    with open_services() as services:
        if expect is None:
            answer = import_answer(review_import(services, workspace, file), None)
        else:
            done = apply_import(services, workspace, file, expect=expect, progress=_tell_settled)
            answer = import_answer(done, propagate_at_once(services, workspace))
    if as_json:
        print_json(answer)
    else:
        _print_import(answer)


def _tell_settled(records: int) -> None:
    say(f"{counted(records, 'more record')} settled")


def _print_import(answer: RegistryImportAnswer) -> None:
    print_table(
        f"{answer.file} into {answer.workspace}: {answer.status}",
        ("line", "source", "subject", "outcome", "card", "warnings"),
        [
            (line.line_number, f"{line.workspace}/{line.id}", line.subject, line.outcome, line.card_id,
             "; ".join(line.warnings))
            for line in answer.records
        ],
    )  # fmt: skip
    if answer.quarantined:
        print_table(
            "not taken",
            ("line", "reason", "what is wrong"),
            [(bad.line_number, bad.reason, bad.message) for bad in answer.quarantined],
        )
    click.echo(", ".join(f"{count} {outcome}" for outcome, count in answer.counts.items()))
    if answer.propagation:
        problem = answer.propagation_problem
        click.echo(f"index: {answer.propagation}" + (f" ({problem.error}: {problem.message})" if problem else ""))
    else:
        click.echo(f"nothing was written; to import this: --apply --expect {answer.expect}")
