"""A registry that is behind its own index was restored."""

from __future__ import annotations

import pytest

from memory_pipeline.core.epoch import Epoch, is_behind


@pytest.mark.parametrize(
    ("registry", "index", "behind"),
    [
        pytest.param(None, None, False, id="nothing was ever written"),
        pytest.param(Epoch("a", 3), None, False, id="nothing was written to this collection"),
        pytest.param(Epoch("a", 3), Epoch("a", 3), False, id="level"),
        pytest.param(Epoch("a", 4), Epoch("a", 3), False, id="about to write"),
        pytest.param(Epoch("a", 2), Epoch("a", 3), True, id="restored"),
        pytest.param(Epoch("b", 9), Epoch("a", 3), True, id="another registry"),
        pytest.param(None, Epoch("a", 1), True, id="restored from before the first write"),
    ],
)
def test_a_registry_is_behind_its_index(registry: Epoch | None, index: Epoch | None, behind: bool) -> None:
    assert is_behind(registry, index) is behind
