"""Rules over figures, where what they tell is easily told wrongly."""

from __future__ import annotations

import pytest

from memory_pipeline.core.health import accepted, fingerprint


@pytest.mark.parametrize(
    ("differences", "unknown", "passed", "told"),
    [
        ((), "", True, "built as it would be now"),
        (("model: a -> b",), "", False, "a rebuild is due: model: a -> b"),
        ((), "the embedder is down", False, "whether a rebuild is due cannot be told: the embedder is down"),
    ],
)
def test_a_rebuild_is_due_only_where_that_is_known(
    differences: tuple[str, ...], unknown: str, passed: bool, told: str
) -> None:
    verdict = fingerprint(differences, unknown)

    assert (verdict.passed, verdict.warns, verdict.told) == (passed, True, told)


def test_one_line_and_several_files_are_told_in_their_number() -> None:
    assert accepted(1, 2).told == "1 line is in quarantine; 2 files were refused whole"
