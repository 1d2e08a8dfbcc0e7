"""What arms a step, and what does not."""

from __future__ import annotations

import pytest

from memory_pipeline.failpoints import NAMES, VARIABLE, Action, Failpoint, Interrupted, armed, reach


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("drain:written", Failpoint("drain:written", Action.KILL, 1)),
        ("drain:written:stop", Failpoint("drain:written", Action.STOP, 1)),
        ("drain:written@3", Failpoint("drain:written", Action.KILL, 3)),
        ("drain:written:error@12", Failpoint("drain:written", Action.ERROR, 12)),
    ],
)
def test_what_the_variable_says(text: str, expected: Failpoint) -> None:
    assert Failpoint.parse(text) == expected


@pytest.mark.parametrize("text", ["", "drain", "drain:", "drain:writen", "drain:written:explode", "drain:written@0"])
def test_a_step_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE):
        Failpoint.parse(text)


def test_a_step_acts_once_at_its_time() -> None:
    with armed("drain:written:error@2"):
        reach("drain:written")
        reach("drain:settled")
        with pytest.raises(Interrupted):
            reach("drain:written")
        reach("drain:written")
    for name in NAMES:
        reach(name)


def test_an_unknown_step_is_an_error_while_one_is_armed() -> None:
    with armed("drain:written"), pytest.raises(ValueError, match="not among"):
        reach("drain:writen")
