"""`memory-pipeline golden`: questions whose answer is known, and the figures that they give."""

from __future__ import annotations

from pathlib import Path

import click

from memory_pipeline.core.display import counted
from memory_pipeline.core.quality import FIGURES
from memory_pipeline.harness.contract import GoldenAcceptAnswer, GoldenAddAnswer, GoldenListAnswer
from memory_pipeline.harness.options import (
    json_option,
    open_services,
    resolve_runtime,
    resolve_workspace,
    workspace_options,
)
from memory_pipeline.harness.output import print_json, print_table
from memory_pipeline.operations.golden import GoldenAdded, GoldenQuestion, add_golden, import_golden, list_golden
from memory_pipeline.operations.quality import accept_quality


@click.group()
def golden() -> None:
    """Keep questions whose answer is known, so that recall can be measured on them."""


@golden.command()
@workspace_options
@click.argument("question")
@click.option("--expect", "expected", multiple=True, required=True, metavar="CARD", help="A card; may be repeated.")
@json_option
def add(slug: str | None, config: Path | None, question: str, expected: tuple[str, ...], as_json: bool) -> None:
    """Say which cards must answer QUESTION in the runtime's place, as the reviewer; said again, the new cards count."""
    with open_services() as services:
        runtime = resolve_runtime(services, slug, config)
        asked = GoldenQuestion(question=question, expected=expected)
        _print_added(add_golden(services, runtime.workspace, [asked], runtime.place), as_json=as_json)


@golden.command("import")
@workspace_options
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def import_command(slug: str | None, config: Path | None, file: Path, as_json: bool) -> None:
    """Add the questions of FILE, as the reviewer, all or none: JSON lines (.jsonl), or a YAML list.

    A question has `question` and `expected` (card ids), and `database` and `schema` where it is not asked in the
    runtime's place.
    """
    with open_services() as services:
        runtime = resolve_runtime(services, slug, config)
        _print_added(import_golden(services, runtime.workspace, file, runtime.place), as_json=as_json)


@golden.command("list")
@workspace_options
@json_option
def list_command(slug: str | None, config: Path | None, as_json: bool) -> None:
    """List the golden questions, oldest first."""
    with open_services() as services:
        found = list_golden(services, resolve_workspace(slug, config))
    if as_json:
        print_json(GoldenListAnswer(**dict(found)))
        return
    print_table(
        f"golden questions of {found.workspace}",
        ("number", "question", "database", "schema", "cards", "added", "by"),
        [
            (
                each.number,
                each.question,
                each.place.database,
                each.place.schema_,
                ", ".join(each.expected),
                f"{each.added_at:%Y-%m-%d}",
                each.added_by,
            )
            for each in found.questions
        ],
    )


@golden.command()
@workspace_options
@json_option
def accept(slug: str | None, config: Path | None, as_json: bool) -> None:
    """Hold later figures against those of the last measurement, as the reviewer."""
    with open_services() as services:
        done = accept_quality(services, resolve_workspace(slug, config))
    if as_json:
        print_json(GoldenAcceptAnswer(**dict(done)))
        return
    figures = done.figures.model_dump()
    print_table(
        f"accepted for {done.workspace}, as measured {done.measured_at:%Y-%m-%d %H:%M}",
        ("figure", "value"),
        [(name, "" if figures[field] is None else f"{figures[field]:.3f}") for field, name in FIGURES.items()],
    )


def _print_added(done: GoldenAdded, *, as_json: bool) -> None:
    if as_json:
        print_json(GoldenAddAnswer(**dict(done)))
    else:
        click.echo(f"{done.workspace}: {counted(done.added, 'golden question')} added, {done.replaced} replaced")
