"""`memory-pipeline` called in this process: the same function, without the second that a start takes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from memory_pipeline.harness.cli import main


def call(
    arguments: tuple[str, ...], *, environment: Mapping[str, str], folder: Path, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """What a process with these arguments, variables, folder and standard input would end with, and have written."""
    before = dict(os.environ), Path.cwd(), sys.stdin, sys.stdout, sys.stderr
    streams = [io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") for data in (stdin.encode(), b"", b"")]
    try:
        _replace_environment(environment)
        os.chdir(folder)
        sys.stdin, sys.stdout, sys.stderr = streams
        code = _code(arguments)
    finally:
        variables, place, sys.stdin, sys.stdout, sys.stderr = before
        _replace_environment(variables)
        os.chdir(place)
    return subprocess.CompletedProcess(arguments, code, *(_written(stream) for stream in streams[1:]))


def _code(arguments: tuple[str, ...]) -> int:
    try:
        main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)
    except BaseException:  # noqa: BLE001 - as the interpreter would tell it
        traceback.print_exc()
        return 1
    raise AssertionError("a command ends by an exit")


def _replace_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8")
