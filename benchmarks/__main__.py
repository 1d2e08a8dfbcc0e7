"""`python -m benchmarks`: measure, show a table, keep it as JSON."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.clock import Figure
from benchmarks.figures import measure
from memory_pipeline.embedded.stack import EmbeddedStack
from memory_pipeline.harness.setup import start
from memory_pipeline.operations.services import Services
from memory_pipeline.settings import Settings

FULL = 100_000
MOST_GROWTH = 1.5


@click.command()
@click.option("--cards", "sizes", type=click.IntRange(min=20), multiple=True, default=(1000, 10_000), show_default=True)
@click.option("--full", is_flag=True, help=f"also {FULL} cards: takes half an hour.")
@click.option("--json", "target", type=click.Path(path_type=Path, dir_okay=False), help="Keep the figures here too.")
def main(sizes: tuple[int, ...], full: bool, target: Path | None) -> None:
    """Measure the pipeline against the bare limits of its servers: embedded ones, or those of the environment."""
    console = Console(stderr=True)
    figures: list[Figure] = []
    with stack() as settings, Services(settings) as services:
        for size in sorted({*sizes, *((FULL,) if full else ())}):
            for figure in measure(services, size, console.log):
                console.log(f"{figure.cards} {figure.name}: {figure.value:.2f} {figure.unit}, {_ratio(figure)}")
                figures.append(figure)
    figures = _with_growth(figures)
    Console(width=160).print(_table(figures))
    if target:
        target.write_text(json.dumps(_record(figures), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def stack() -> Iterator[Settings]:
    """The servers of the environment, or embedded ones of their own that go with all they hold."""
    if "MEMORY_POSTGRES_HOST" in os.environ:
        yield start(Settings(), lambda _: None)
        return
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        servers = EmbeddedStack(Path(folder))
        try:
            yield start(Settings(state=Path(folder)), lambda _: None)
        finally:
            servers.down(purge=True)


def _with_growth(figures: list[Figure]) -> list[Figure]:
    """An edit is judged by what it took in the workspace a tenth the size."""
    edits = {figure.cards: figure.value for figure in figures if figure.name == "one card edited"}
    return [
        figure.model_copy(
            update={
                "reached": figure.reached is not False and figure.value / edits[figure.cards // 10] <= MOST_GROWTH,
                "notes": figure.notes | {"growth": figure.value / edits[figure.cards // 10]},
            }
        )
        if figure.name == "one card edited" and figure.cards // 10 in edits
        else figure
        for figure in figures
    ]


def _table(figures: list[Figure]) -> Table:
    table = Table("cards", "what", "value", "bare limit", "ratio", "memory", "goal", "reached", "notes")
    for figure in figures:
        notes = ", ".join(f"{name} {_short(value)}" for name, value in figure.notes.items())
        table.add_row(
            f"{figure.cards:,}",
            figure.name,
            f"{figure.value:.2f} {figure.unit}",
            "" if figure.bare is None else f"{figure.bare:.2f} {figure.unit}",
            _ratio(figure),
            "" if figure.memory is None else f"{figure.memory:.0f} MB",
            figure.goal,
            {True: "yes", False: "no", None: ""}[figure.reached],
            notes,
        )
    return table


def _ratio(figure: Figure) -> str:
    return "" if figure.ratio is None else f"{figure.ratio:.3f}"


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _record(figures: list[Figure]) -> dict[str, object]:
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "figures": [figure.model_dump() for figure in figures],
    }


if __name__ == "__main__":
    main()
