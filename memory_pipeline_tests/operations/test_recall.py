"""What a search proposes, and what it never does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.context import SearchFilters
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import (
    BadInput,
    BadQuestion,
    BadText,
    CollectionMissing,
    EmbedderUnavailable,
    FilterNotAllowed,
    IndexUnavailable,
    NotIndexed,
    UnknownWorkspace,
    WorkspaceRetired,
)
from memory_pipeline.core.projection import IndexFormat, project
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedding.lexical import SparseVector
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.operations.index import index
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.recall import OnEmbedderDown
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations
from memory_pipeline.store.database import Role
from memory_pipeline_tests.flows import (
    ABLATION,
    MORTALITY,
    READMISSION,
    ask,
    closed_port,
    found,
    line,
    promote,
    revise,
    with_settings,
)


@pytest.fixture
def filled(services: Services, workspace: Workspace) -> Workspace:
    """Three memories, indexed: ablation is mem-0001, readmission mem-0002, mortality mem-0003."""
    promote(services, workspace.slug, [ABLATION, READMISSION, MORTALITY])
    drain(services, workspace.slug)
    return workspace


@pytest.mark.parametrize(
    ("question", "card"),
    [
        ("Quante ablazioni sono state fatte nel 2023?", "mem-0001"),
        ("Quanti nuovi ricoveri entro 30 giorni?", "mem-0002"),
        ("How many patients died in hospital?", "mem-0003"),
    ],
)
def test_the_memory_is_found_in_either_language(
    services: Services, filled: Workspace, question: str, card: str
) -> None:
    assert found(ask(services, filled.slug, question))[0] == card


def test_the_answer_is_the_current_row_with_its_scores_and_sources(services: Services, filled: Workspace) -> None:
    best = ask(services, filled.slug, "ablazione transcatetere", limit=1).proposals[0]

    assert (best.rank, best.card.id, best.card.detail) == (1, "mem-0001", ABLATION["detail"])
    assert best.sources == ("s1:seq:1",)
    assert best.scores.dense is not None
    assert best.scores.fused == pytest.approx(
        best.scores.dense + 1.2 * best.scores.bm25 / (best.scores.bm25 + 10), abs=1e-5
    )


def test_no_decision_but_a_clarified_concept_is_ever_found(services: Services, workspace: Workspace) -> None:
    append(services, workspace.slug, "s1", [line("table_promoted", subject="fact_procedure", detail="ablazioni")])
    promote(services, workspace.slug, [ABLATION, {"subject": "fact_ablazione", "detail": "tabella delle ablazioni"}])
    drain(services, workspace.slug)

    answer = ask(services, workspace.slug, "ablazioni in fact_procedure", limit=50)

    assert [proposal.card.subject for proposal in answer.proposals] == ["ablazione"]


def test_a_point_planted_with_a_forbidden_type_is_not_proposed(services: Services, filled: Workspace) -> None:
    """Its card does not exist in the registry: a hit is only a pointer."""
    with services.database.transaction(Role.READER, filled.slug) as tx:
        generation = generations.serving(tx, filled.slug)
        card = cards.get_many(tx, filled.slug, ["mem-0001"])["mem-0001"]
    assert generation is not None
    planted = project(card.model_copy(update={"id": "mem-9999"}), generation.format)
    vector = services.embedder.embed_query(generation.format.model, "ablazione", dimensions=512)
    services.index.upsert(generation.collection, [IndexPoint(planted, vector, SparseVector((), ()))])

    answer = ask(services, filled.slug, "ablazione")

    assert "mem-9999" not in found(answer)
    assert answer.excluded == {"missing": 1}


def test_a_point_that_holds_another_text_than_the_registry_is_not_proposed(
    services: Services, filled: Workspace
) -> None:
    with services.database.transaction(Role.READER, filled.slug) as tx:
        generation = generations.serving(tx, filled.slug)
        card = cards.get_many(tx, filled.slug, ["mem-0001"])["mem-0001"]
    assert generation is not None
    stale = project(card.model_copy(update={"detail": "un altro testo"}), generation.format)
    vector = np.full(512, 1 / np.sqrt(512), dtype=np.float32)
    services.index.upsert(generation.collection, [IndexPoint(stale, vector, SparseVector((), ()))])

    answer = ask(services, filled.slug, "ablazione")

    assert "mem-0001" not in found(answer)
    assert answer.excluded == {"not_current": 1}


def test_the_limit_is_filled_behind_hits_that_are_not_current(services: Services, workspace: Workspace) -> None:
    concepts = [{"subject": f"ablazione {number}", "detail": f"ablazione di tipo {number}"} for number in range(60)]
    promote(services, workspace.slug, concepts)
    drain(services, workspace.slug)
    with services.database.transaction(Role.REVIEWER, workspace.slug) as tx:
        tx.execute(
            "UPDATE cards SET detail = detail || ' cambiata', revision = revision + 1, updated_by = session_user "
            "WHERE number <= 50"
        )

    answer = ask(services, workspace.slug, "ablazione", limit=5)

    assert len(answer.proposals) == 5
    assert set(found(answer)) <= {f"mem-{number:04d}" for number in range(51, 61)}


@pytest.mark.parametrize(
    ("dependencies", "filters", "is_found"),
    [
        ([], {}, True),
        ([{"database": "cardio"}], {}, True),
        ([{"database": "other"}], {}, False),
        ([{"database": "cardio", "schema": "archive"}], {}, False),
        ([{"database": "cardio", "table": "fact_procedure"}], {"table": "fact_procedure"}, True),
        ([{"database": "cardio", "table": "FACT_Procedure"}], {"table": "fact_procedure"}, True),
        ([{"database": "cardio", "table": "fact_other"}], {"table": "fact_procedure"}, False),
        ([{"database": "cardio", "table": "fact_procedure"}], {"table": "fact_procedure", "column": "anno"}, True),
        ([{"database": "cardio", "table": "fact_procedure", "column": "anno"}], {"table": "fact_procedure"}, True),
        (
            [{"database": "cardio", "table": "t1"}, {"database": "other", "schema": "public", "table": "t2"}],
            {"table": "t2"},
            False,
        ),
    ],
)
def test_a_memory_is_found_where_it_holds(
    services: Services,
    workspace: Workspace,
    dependencies: list[dict[str, str]],
    filters: dict[str, str],
    is_found: bool,
) -> None:
    promote(services, workspace.slug, [{**ABLATION, "dependencies": dependencies}])
    drain(services, workspace.slug)

    answer = ask(services, workspace.slug, "ablazione", filters=SearchFilters.parse(filters))

    assert bool(answer.proposals) is is_found


@pytest.mark.parametrize(
    ("card", "filters", "is_found"),
    [
        ({"scope": ["budget"]}, {"scope": ["Budget"]}, True),
        ({"scope": ["budget"]}, {"scope": ["consuntivo"]}, False),
        ({"scope": []}, {"scope": ["consuntivo"]}, True),
        ({"concepts": ["Aritmia", "catetere"]}, {"concepts": ["aritmia"]}, True),
        ({"concepts": ["aritmia"]}, {"concepts": ["ricovero"]}, False),
        ({}, {"kinds": ["exemplar"]}, False),
    ],
)
def test_filters_narrow(
    services: Services,
    workspace: Workspace,
    card: dict[str, list[str]],
    filters: dict[str, list[str]],
    is_found: bool,
) -> None:
    promote(services, workspace.slug, [{**ABLATION, **card}])
    drain(services, workspace.slug)

    answer = ask(services, workspace.slug, "ablazione", filters=SearchFilters.parse(filters))

    assert bool(answer.proposals) is is_found


@pytest.mark.parametrize("name", ["database", "schema", "workspace", "language"])
def test_a_filter_cannot_replace_what_the_runtime_fixes(name: str) -> None:
    with pytest.raises(FilterNotAllowed, match=name):
        SearchFilters.parse({name: "other"})


def test_a_search_of_another_kind_needs_its_name_and_finds_no_memory(services: Services, filled: Workspace) -> None:
    answer = ask(services, filled.slug, "ablazione", filters=SearchFilters(kinds=(CardKind.EXEMPLAR,)))

    assert answer.proposals == ()


def test_what_the_session_settled_is_not_proposed_again(services: Services, filled: Workspace) -> None:
    append(
        services,
        filled.slug,
        "later",
        [
            line(subject="ablazione", detail="come prima", rationale="scelta mem-0001"),
            line("memory_rejected", subject="mem-0002"),
        ],
    )

    answer = ask(services, filled.slug, "ablazione, riammissione, mortalità", session="later")

    assert found(answer) == ["mem-0003"]
    assert set(answer.decided) == {"mem-0001", "mem-0002"}


def test_a_retracted_choice_is_proposed_again(services: Services, filled: Workspace) -> None:
    append(
        services,
        filled.slug,
        "later",
        [
            line(subject="ablazione", detail="come prima", memories=["mem-0001"]),
            line("decision_retracted", detail="seq:1"),
        ],
    )

    assert "mem-0001" in found(ask(services, filled.slug, "ablazione", session="later"))


@pytest.mark.parametrize(
    ("question", "error"),
    [("", BadQuestion), ("  \n ", BadQuestion), ("x" * 100_000, BadQuestion), ("a\x00b", BadText), ("\ud800", BadText)],
)
def test_a_question_that_cannot_be_asked_is_refused_by_name(
    services: Services, filled: Workspace, question: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        ask(services, filled.slug, question)


@pytest.mark.parametrize("limit", [0, -1, 1000])
def test_a_limit_that_cannot_be_served_is_refused(services: Services, filled: Workspace, limit: int) -> None:
    with pytest.raises(BadInput, match=str(limit)):
        ask(services, filled.slug, "ablazione", limit=limit)


def test_a_question_of_stop_words_alone_is_answered_by_the_dense_branch(services: Services, filled: Workspace) -> None:
    answer = ask(services, filled.slug, "che cosa è?")

    assert len(answer.proposals) == 3
    assert all(proposal.scores.bm25 == 0 for proposal in answer.proposals)


def test_a_filter_that_leaves_nothing_gives_an_empty_answer(services: Services, filled: Workspace) -> None:
    answer = ask(services, filled.slug, "ablazione", place=Dependency(database="other"))

    assert len(answer.proposals) == 3, "cards without dependencies serve every place"
    assert ask(services, filled.slug, "ablazione", filters=SearchFilters(concepts=("niente",))).proposals == ()


def test_a_workspace_never_indexed_is_an_error(services: Services, workspace: Workspace) -> None:
    with pytest.raises(NotIndexed, match=workspace.slug):
        ask(services, workspace.slug, "ablazione")


def test_an_indexed_workspace_without_cards_gives_an_empty_answer(services: Services, workspace: Workspace) -> None:
    index(services, workspace.slug)

    assert ask(services, workspace.slug, "ablazione").proposals == ()


def test_an_unknown_workspace_is_an_error(services: Services) -> None:
    with pytest.raises(UnknownWorkspace, match="no-such"):
        ask(services, "no-such", "ablazione")


def test_a_retired_workspace_is_not_searched(services: Services, filled: Workspace) -> None:
    with services.database.transaction(Role.OWNER, filled.slug) as tx:
        tx.execute("UPDATE workspaces SET status = 'retired'")

    with pytest.raises(WorkspaceRetired):
        ask(services, filled.slug, "ablazione")


def test_an_embedder_that_is_down_is_an_error_by_default(services: Services, filled: Workspace) -> None:
    with (
        with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as broken,
        pytest.raises(EmbedderUnavailable),
    ):
        ask(broken, filled.slug, "ablazione")


def test_an_embedder_that_is_down_leaves_the_lexical_branch_where_asked_for(
    services: Services, filled: Workspace
) -> None:
    with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as broken:
        answer = ask(broken, filled.slug, "ablazione", on_embedder_down=OnEmbedderDown.LEXICAL)

    assert answer.degraded is not None
    assert found(answer) == ["mem-0001"]
    assert answer.proposals[0].scores.dense is None


def test_a_qdrant_that_is_down_is_an_error(services: Services, filled: Workspace) -> None:
    with (
        with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as broken,
        pytest.raises(IndexUnavailable),
    ):
        ask(broken, filled.slug, "ablazione")


def test_a_lost_collection_is_an_error_until_it_is_filled_again(services: Services, filled: Workspace) -> None:
    with services.database.transaction(Role.READER, filled.slug) as tx:
        generation = generations.serving(tx, filled.slug)
    assert generation is not None
    services.index.drop(generation.collection)

    with pytest.raises(CollectionMissing, match=generation.collection):
        ask(services, filled.slug, "ablazione")

    index(services, filled.slug)
    assert found(ask(services, filled.slug, "ablazione"))[0] == "mem-0001"


def test_the_format_of_the_serving_generation_is_told_by_the_store(services: Services, filled: Workspace) -> None:
    with services.database.transaction(Role.READER, filled.slug) as tx:
        generation = generations.serving(tx, filled.slug)

    assert generation is not None
    assert isinstance(generation.format, IndexFormat)
    assert (generation.format.dimensions, generation.format.language) == (512, "it")


def test_a_revision_not_yet_propagated_hides_the_card_rather_than_show_the_old_text(
    services: Services, filled: Workspace
) -> None:
    revise(services, filled.slug, "mem-0001", detail="testo nuovo, non ancora propagato")

    answer = ask(services, filled.slug, "ablazione")

    assert "mem-0001" not in found(answer)
    assert answer.excluded == {"not_current": 1}


def test_a_search_without_any_embedder_is_lexical_where_asked_for(services: Services, filled: Workspace) -> None:
    with with_settings(
        services, ollama_url=None, state=Path("/nowhere"), secrets_dir=services.settings.secrets
    ) as alone:
        answer = ask(alone, filled.slug, "ablazione", on_embedder_down=OnEmbedderDown.LEXICAL)

    assert answer.degraded is not None
    assert found(answer) == ["mem-0001"]


def test_a_point_of_nobody_cannot_break_a_search(services: Services, filled: Workspace) -> None:
    with services.database.transaction(Role.READER, filled.slug) as tx:
        generation = generations.serving(tx, filled.slug)
        card = cards.get_many(tx, filled.slug, ["mem-0001"])["mem-0001"]
    assert generation is not None
    planted = project(card.model_copy(update={"id": "mem-9999"}), generation.format)
    hostile = planted.model_copy(update={"card_id": "mem-\x00"})
    vector = services.embedder.embed_query(generation.format.model, "ablazione", dimensions=512)
    services.index.upsert(generation.collection, [IndexPoint(hostile, vector, SparseVector((), ()))])

    answer = ask(services, filled.slug, "ablazione")

    assert "mem-0001" in found(answer)
    assert answer.excluded == {"missing": 1}
