"""`memory-pipeline evaluate`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from memory_pipeline.core.languages import LANGUAGES
from memory_pipeline.harness.contract import EvaluateAnswer
from memory_pipeline.harness.options import json_option, open_services
from memory_pipeline.harness.output import print_json, print_table, say
from memory_pipeline.harness.sample import golden_corpus
from memory_pipeline.operations.evaluate import Evaluation, Figures, Progress, SetFigures, evaluate


@click.command("evaluate")
@click.option(
    "--corpora",
    "path",
    type=click.Path(path_type=Path),
    default=golden_corpus,
    metavar="PATH",
    help="Folders with cards.jsonl or passages.jsonl, and queries.jsonl; by default the golden set of the project.",
)
@click.option("--set", "names", multiple=True, metavar="NAME", help="Only this set; may be repeated.")
@click.option("--language", type=click.Choice(sorted(LANGUAGES)), help="Only questions in this language.")
@json_option
def evaluate_command(path: Path, names: tuple[str, ...], language: str | None, as_json: bool) -> None:
    """Measure how well recall finds the right cards, on corpora of cards and questions.

    Each set goes into a scratch workspace of its own, which is purged in the end, on Ctrl-C too. Needs the secrets of
    the owner, the reviewer, the indexer and the reader.
    """
    with open_services() as services, _progress_bar() as progress:
        found = evaluate(services, path, names=names, language=language, progress=progress)
    if as_json:
        print_json(EvaluateAnswer(**dict(found)))
        return
    _print(found)


def _print(found: Evaluation) -> None:
    """Two tables that fit a terminal: three rows for each set, a branch in each; and how long its searches took."""
    print_table(
        "recall",
        ("set", "branch", "nDCG@10", "R@1", "R@5", "MRR", "closure", "leaks"),
        [row for each in found.sets for row in _rows(each)],
    )
    stages = list(dict.fromkeys(stage for each in found.sets for stage in each.latency_ms))
    print_table(
        "milliseconds of a search, p50/p95",
        ("set", *stages),
        [
            (
                f"{each.name} {each.protocol} {each.language}",
                *(f"{spent.p50:.0f}/{spent.p95:.0f}" if spent else "" for spent in map(each.latency_ms.get, stages)),
            )
            for each in found.sets
            if each.queries
        ],
        empty="no question has a card that answers it",
    )


def _rows(each: SetFigures) -> list[tuple[object, ...]]:
    return [
        (each.name, "fused", *_cells(each.fused), _cell(each.closure_recall), each.scope_leaks),
        (f"{each.protocol} {each.language}", "dense", *_cells(each.dense), "", ""),
        (f"{each.queries} queries", "bm25", *_cells(each.bm25), "", ""),
    ]


def _cells(figures: Figures) -> tuple[str, ...]:
    return tuple(_cell(value) for value in (figures.ndcg_at_10, figures.recall_at_1, figures.recall_at_5, figures.mrr))


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


@contextlib.contextmanager
def _progress_bar() -> Iterator[Progress]:
    """A bar for each set on standard error; where that is no terminal, a line for each."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        tasks = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done)

        yield show


def _tell(name: str, done: int, total: int) -> None:
    if done in (0, total):
        say(f"{name}: {done} of {total} questions")
