"""The three standard streams, whatever state the caller left them in."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import TextIO

from memory_pipeline.core.errors import AnswerLost


def open_streams() -> None:
    """Make sure that there are three streams, and that each fails in its own way only.

    Where one is closed it becomes /dev/null: else the next file or socket that is opened would get its number, and be
    written to as if it were the stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
        if getattr(sys, name) is None:  # what Python makes of a closed one
            setattr(sys, name, open(number, "r+" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    if sys.stdout is sys.__stdout__:  # not where a program that calls this one has put another in its place
        sys.stdout = _Answers.over(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _Messages.over(sys.stderr)


def answered(run: Callable[[], int]) -> int:
    """Run a command and hand its answer over; say so where it cannot be, for the command's work is done by then.

    A reader that went away (`| head`) is told by the exit code alone.
    """
    try:
        code = run()
        sys.stdout.flush()
    except _NotTaken as failure:
        _drop_what_is_left()
        if not isinstance(failure.__cause__, BrokenPipeError):
            lost = AnswerLost(str(failure))
            tell(f"{lost.name}: {lost.message}\n  {lost.hint}")
        return AnswerLost.exit_code
    return code


def tell(message: str) -> None:
    """Write a line to standard error. Where that is not possible nobody listens, and the work goes on."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


class _NotTaken(Exception):
    """Standard output took no more. Told apart from what files and sockets raise."""


class _Stream(io.TextIOWrapper):
    @classmethod
    def over(cls, stream: TextIO | None) -> _Stream:
        """The same stream with the ways of this class; the one before is not to be used any more."""
        assert isinstance(stream, io.TextIOWrapper)  # noqa: S101 - what Python makes of a standard stream
        encoding, errors, by_line, at_once = stream.encoding, stream.errors, stream.line_buffering, stream.write_through
        return cls(stream.detach(), encoding=encoding, errors=errors, line_buffering=by_line, write_through=at_once)


class _Answers(_Stream):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise _NotTaken(error.strerror) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _NotTaken(error.strerror) from error


class _Messages(_Stream):
    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            return


def _drop_what_is_left() -> None:
    """Nothing that is left in the buffer is tried again when the interpreter ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
