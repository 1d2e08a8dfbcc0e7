"""The family of errors, which is part of the contract: names, exit codes, and a hint with each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click import Context

from memory_pipeline.core import errors
from memory_pipeline.core.errors import MemoryPipelineError
from memory_pipeline.embedded import errors as embedded_errors
from memory_pipeline.harness.cli import cli

ARGUMENTS: dict[Any, Any] = {
    str: "odd name",
    int: 7,
    float: 1.5,
    Path: Path("/x"),
    Iterable[str]: ["one", "two"],
    Iterable[int]: [7, 3],
}
"""What a constructor is given for a parameter of each type."""


def family(base: type[MemoryPipelineError] = MemoryPipelineError) -> Iterator[type[MemoryPipelineError]]:
    for error in base.__subclasses__():
        yield error
        yield from family(error)


FAMILY = [error for error in family() if error.__module__ in (errors.__name__, embedded_errors.__name__)]
each_error = pytest.mark.parametrize("error", FAMILY, ids=lambda error: error.__name__)


def raised(error: type[MemoryPipelineError]) -> MemoryPipelineError:
    parameters = inspect.signature(error, eval_str=True).parameters.values()
    return error(**{parameter.name: ARGUMENTS[parameter.annotation] for parameter in parameters})


def documented() -> dict[int, str]:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", errors.__doc__ or "", re.MULTILINE)
    return {int(code): meaning for code, meaning in rows}


@each_error
def test_an_exit_code_is_in_the_documented_table(error: type[MemoryPipelineError]) -> None:
    assert error.exit_code in documented()


@each_error
def test_an_error_is_told_apart_from_a_defect_and_from_success(error: type[MemoryPipelineError]) -> None:
    assert error.exit_code not in (0, 1, 2)


def test_every_documented_code_is_in_use() -> None:
    assert {error.exit_code for error in FAMILY} == documented().keys() - {0, 1, 2}


@each_error
def test_an_error_says_what_happened_and_what_to_do(error: type[MemoryPipelineError]) -> None:
    made = raised(error)
    assert made.message.strip()
    assert made.hint.strip()
    assert str(made) == f"{made.message} ({made.hint})"


@each_error
def test_a_hint_is_one_line(error: type[MemoryPipelineError]) -> None:
    assert "\n" not in raised(error).hint


@each_error
def test_the_name_of_an_error_is_its_class_and_belongs_to_no_other(error: type[MemoryPipelineError]) -> None:
    assert raised(error).name == error.__name__
    assert [other for other in FAMILY if other.__name__ == error.__name__] == [error]


@each_error
def test_a_hint_names_only_commands_that_exist(error: type[MemoryPipelineError]) -> None:
    named = set(re.findall(r"(?<!of )memory-pipeline ([a-z]+)", raised(error).hint))
    assert named <= cli.commands.keys() | set(cli.list_commands(Context(cli)))
