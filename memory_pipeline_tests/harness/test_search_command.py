"""`memory-pipeline search` as a person sees it, in this process: what it prints, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from memory_pipeline.core.errors import BadInput
from memory_pipeline.harness.commands.search import search
from memory_pipeline.operations.index import index
from memory_pipeline.operations.services import Services
from memory_pipeline_tests.flows import promote
from memory_pipeline_tests.operations.linked import open_workspace

RULE = {"subject": "margine", "detail": "ricavi meno costi diretti", "rationale": "bilancio"}
PERIOD = {"subject": "esercizio", "detail": "da luglio a giugno"}


@pytest.fixture(scope="module")
def linked(services: Services) -> Iterator[str]:
    """A rule that requires the card on its period, and one that nobody has."""
    links = [{"relation": "requires", "target": target} for target in ("seq:2", "seq:99")]
    with open_workspace(services) as slug:
        promote(services, slug, [{**RULE, "links": links}, PERIOD])
        index(services, slug)
        yield slug


def run(services: Services, *arguments: str) -> Result:
    environment = {"MEMORY_STATE": str(services.settings.state)}
    return CliRunner().invoke(search, list(arguments), env=environment, catch_exceptions=False)


def test_an_explanation_shows_scores_and_the_way_by_which_each_came(services: Services, linked: str) -> None:
    result = run(services, "-w", linked, "margine: ricavi meno costi", "--limit", "1", "--explain")

    assert result.exit_code == 0
    for told in ("score", "dense", "bm25", "fused", "reached by", "mem-0001 requires", "s1:seq:1"):
        assert told in result.stdout
    assert "mem-0001 is incomplete: it requires seq:99 (not_promoted)" in result.stderr
    assert "ms: embed" in result.stderr


def test_the_answer_as_json_says_why_each_came(services: Services, linked: str) -> None:
    result = run(services, "-w", linked, "margine: ricavi meno costi", "--limit", "1", "--json")

    answer = json.loads(result.stdout)
    rule, period = answer["proposals"]
    assert (rule["reached_by"], period["reached_by"]) == ("search", "mem-0001 requires mem-0002")
    assert rule["incomplete"] == [{"target": "seq:99", "reason": "not_promoted"}]
    assert rule["score"] > period["score"] > 0
    assert answer["limits"] == []
    assert set(answer["timings"]) == {"embed", "index", "registry", "links", "total"}


def test_links_can_be_left_alone(services: Services, linked: str) -> None:
    result = run(services, "-w", linked, "margine: ricavi meno costi", "--limit", "1", "--depth", "0", "--json")

    answer = json.loads(result.stdout)
    assert [proposal["card"]["id"] for proposal in answer["proposals"]] == ["mem-0001"]
    assert answer["limits"] == ["depth"]


@pytest.mark.parametrize("filters", ["{table: a, table: b}", '{"table": "a", "table": "b"}'])
def test_a_filter_that_is_given_twice_is_refused(services: Services, linked: str, filters: str) -> None:
    with pytest.raises(BadInput, match="'table' is repeated"):
        run(services, "-w", linked, "margine", "--filters", filters)


def test_filters_that_leave_nothing_are_an_empty_answer_and_no_error(services: Services, linked: str) -> None:
    result = run(services, "-w", linked, "margine", "--filters", "concepts: [niente]", "--explain")

    assert result.exit_code == 0
    assert "no memory found" in result.stdout
