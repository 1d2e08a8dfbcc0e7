"""`runtime.yaml`: what is taken, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_pipeline.core.errors import (
    BadDependency,
    BadRuntime,
    BadText,
    BadWorkspace,
    MemoryPipelineError,
    UnknownLanguage,
)
from memory_pipeline.harness.runtime import load_runtime, parse_runtime


def test_a_full_runtime() -> None:
    runtime = parse_runtime("workspace: w\ndatabase: d\nschema: s\nlanguage: it\n", "x")

    assert (runtime.workspace, runtime.language, runtime.place.path()) == ("w", "it", "d/s")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", BadRuntime),
        ("- a\n", BadRuntime),
        ("workspace: w\n", BadRuntime),
        ("workspace: w\ndatabase: d\ncolour: red\n", BadRuntime),
        ("workspace: [w]\ndatabase: d\n", BadRuntime),
        ("workspace: w\ndatabase: 'unclosed\n", BadRuntime),
        ("workspace: Not A Slug\ndatabase: d\n", BadWorkspace),
        ("workspace: w\ndatabase: ''\n", BadDependency),
        ("workspace: w\ndatabase: d\nlanguage: tlh\n", UnknownLanguage),
        ("[" * 5000, BadRuntime),
        ("workspace: w\ndatabase: d\nworkspace: v\n", BadRuntime),
        ('workspace: w\ndatabase: "d\\ud800"\n', BadText),
    ],
)
def test_what_cannot_be_is_refused_by_name(text: str, error: type[MemoryPipelineError]) -> None:
    with pytest.raises(error):
        parse_runtime(text, "runtime.yaml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"workspace: citt\xe0\n")

    for name in ("none.yaml", "latin.yaml", "."):
        with pytest.raises(BadRuntime, match=name):
            load_runtime(tmp_path / name)
