"""Events: one line each, with ids and figures, and nothing that somebody wrote or that is secret."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from memory_pipeline import logs
from memory_pipeline.core.errors import BadQuestion, UnknownWorkspace
from memory_pipeline.logs import bound, configure, event, operation


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    yield
    configure("off")


def written(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == "", "standard output is the answer's"
    return [json.loads(line) for line in captured.err.splitlines()]


def test_an_event_is_a_line_with_the_ids_of_all_that_is_around_it(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json", run="r-1")

    with bound(workspace="cardio"), bound(card="mem-0001", session=None):
        event("card.settled", revision=2)
    configure("json")
    event("done")

    first, second = written(capsys)
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "info",
        "event": "card.settled",
        "workspace": "cardio",
        "run": "r-1",
        "card": "mem-0001",
        "revision": 2,
    }
    assert second.keys() == {"time", "level", "event"}


def test_one_event_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json")

    event("odd", label="a\nb\x1b[31m\u2028è")

    (line,) = written(capsys)
    assert line["label"] == "a\nb\x1b[31m\u2028è"


@pytest.mark.parametrize(("mode", "level", "lines"), [("off", "debug", 0), ("text", "info", 2), ("json", "warning", 1)])
def test_what_is_written_is_a_setting_and_the_last_one_holds(
    capsys: pytest.CaptureFixture[str], mode: logs.Mode, level: logs.Level, lines: int
) -> None:
    configure("json", "debug")
    configure(mode, level)

    event("a")
    event("b", level=logging.WARNING)

    assert len(capsys.readouterr().err.splitlines()) == lines


def test_a_use_case_tells_how_it_ended_with_the_name_of_an_error_and_not_its_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @operation("search", figures=lambda found: {"found": len(found)})
    def search(services: object, workspace: str, question: str) -> list[str]:
        if not question:
            raise BadQuestion(f"nothing about {question!r} secret-word", hint="")
        return [question]

    configure("json")
    assert search(None, "cardio", "ablazione") == ["ablazione"]
    with pytest.raises(BadQuestion):
        search(None, "cardio", "")

    done, failed = written(capsys)
    assert (done["event"], done["workspace"], done["found"]) == ("search.done", "cardio", 1)
    assert (failed["event"], failed["level"], failed["error"]) == ("search.failed", "warning", "BadQuestion")
    assert done["ms"] >= 0
    assert "ablazione" not in json.dumps(done)
    assert "secret-word" not in json.dumps(failed)


def test_a_name_that_is_no_workspaces_comes_into_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    @operation("show")
    def show(services: object, workspace: str) -> None:
        raise UnknownWorkspace(workspace)

    configure("json")
    with pytest.raises(UnknownWorkspace):
        show(None, "x" * 500 + "\n")

    (line,) = written(capsys)
    assert "workspace" not in line
