"""What a person sees: tables and lines on standard output, messages on standard error, or the bare JSON answer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from memory_pipeline.core.errors import MemoryPipelineError
from memory_pipeline.harness.streams import tell

if TYPE_CHECKING:
    from rich.console import Console

    from memory_pipeline.harness.contract import Answer
    from memory_pipeline.operations.propagate import DrainReport


def print_json(answer: Answer) -> None:
    """Write an answer, and nothing else, to standard output."""
    click.echo(answer.model_dump_json(indent=2 if sys.stdout.isatty() else None))


def print_error(error: MemoryPipelineError, *, as_json: bool) -> None:
    """Tell an error: what happened, what to do now."""
    if as_json:
        from memory_pipeline.harness.contract import error_answer

        print_json(error_answer(error))
    tell(f"{error.name}: {printable(error.message)}\n  {printable(error.hint)}")


def print_usage_error(error: click.ClickException) -> None:
    """The answer of the contract to a command whose own words are off."""
    from memory_pipeline.harness.contract import ErrorAnswer

    print_json(
        ErrorAnswer(
            error=type(error).__name__,
            message=error.format_message(),
            hint="see the command's --help",
            exit_code=error.exit_code,
        )
    )


def say(message: str) -> None:
    """A message on the way, to standard error."""
    tell(message)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "none") -> None:
    """A table that a person can read. Cells are texts, never markup."""
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    table = Table(title=Text(title, style="bold"), title_justify="left", header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable("" if cell is None else str(cell))) for cell in row))
    console = _console()
    if rows:
        console.print(table)
    else:
        console.print(Text(f"{title}: {empty}" if empty else title))


def print_drain(drained: DrainReport) -> None:
    """What a drain did, what it left, and what stopped it."""
    click.echo(
        f"{drained.upserted} upserted, {drained.payload_only} payloads, {drained.removed} removed, "
        f"{drained.embedded} embedded; {drained.pending} pending, {drained.parked} parked"
    )
    if drained.failed:
        print_table(
            "waiting", ("card", "error", "what happened"), [(f.card_id, f.error, f.message) for f in drained.failed]
        )
    if drained.problem:
        say(f"stopped by {drained.problem.error}: {drained.problem.message} ({drained.problem.hint})")


def printable(text: str) -> str:
    """The text without what could act on a terminal: control characters and changes of direction."""
    return "".join(sign if sign.isprintable() or sign == "\n" else f"\\u{ord(sign):04x}" for sign in text)


def _console() -> Console:
    from rich.console import Console

    # A pipe has no width; folding there to 80 columns would tear what the next program reads.
    return Console(width=None if sys.stdout.isatty() else 132, highlight=False)
