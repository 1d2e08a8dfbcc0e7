"""The use cases tell what they did: ids and counts, no word that somebody wrote, no secret."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from memory_pipeline.core.errors import StoreUnavailable
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.logs import configure
from memory_pipeline.operations.index import index
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.flows import ABLATION, ask, closed_port, promote, with_settings


@pytest.fixture(autouse=True)
def loud() -> Iterator[None]:
    configure("json", "debug", run="r-1")
    yield
    configure("off")


def test_from_a_decision_to_a_search_each_step_is_told_and_nothing_of_the_texts(
    services: Services, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    promote(services, workspace.slug, [ABLATION])
    index(services, workspace.slug)
    ask(services, workspace.slug, "Quante parola-segreta per anno?")
    with with_settings(services, postgres_port=closed_port()) as down, pytest.raises(StoreUnavailable):
        index(down, workspace.slug)

    written = capsys.readouterr().err
    events = {line["event"]: line for line in map(json.loads, written.splitlines())}
    assert {"ledger.append.done", "promote.preview.done", "promote.decide.done", "outbox.drain.done"} <= events.keys()
    assert {line["workspace"] for line in events.values()} == {workspace.slug}
    assert {line["run"] for line in events.values()} == {"r-1"}
    assert events["promote.decide.done"]["cards"] == ["mem-0001"]
    assert events["outbox.drain.done"]["upserted"] == 1
    assert events["search.done"]["found"] == 1
    assert (events["index.failed"]["error"], events["index.failed"]["level"]) == ("StoreUnavailable", "warning")
    texts = [*ABLATION.values(), "parola-segreta"]
    secrets = [file.read_text().strip() for file in services.settings.secrets.iterdir()]
    assert not [word for word in (*texts, *secrets) if word in written]
