"""`up` beyond the servers: the inbox; `status` where not all of them run."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_pipeline.core.errors import ConfigurationError
from memory_pipeline.harness.setup import start
from memory_pipeline.settings import Settings
from memory_pipeline_tests.conftest import Cli


@pytest.mark.embedded
@pytest.mark.parametrize("below", ["", "inbox"])
def test_an_inbox_that_is_a_file_is_one_named_error(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("MEMORY_INBOX", str(tmp_path / "file" / below))

    with pytest.raises(ConfigurationError, match=r"inbox .*file.* cannot be made"):
        start(settings, lambda _: None)


@pytest.mark.embedded
def test_the_status_says_what_to_do_where_a_server_does_not_run(cli: Cli, tmp_path: Path) -> None:
    assert "memory-pipeline up" not in cli("status").stderr
    assert "not every server runs: run memory-pipeline up" in cli("status", MEMORY_STATE=str(tmp_path / "empty")).stderr
