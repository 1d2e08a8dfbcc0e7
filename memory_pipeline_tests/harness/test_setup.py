"""`up` beyond the servers: the inbox."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_pipeline.core.errors import ConfigurationError
from memory_pipeline.harness.setup import start
from memory_pipeline.settings import Settings


@pytest.mark.embedded
@pytest.mark.parametrize("below", ["", "inbox"])
def test_an_inbox_that_is_a_file_is_one_named_error(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("MEMORY_INBOX", str(tmp_path / "file" / below))

    with pytest.raises(ConfigurationError, match=r"inbox .*file.* cannot be made"):
        start(settings, lambda _: None)
