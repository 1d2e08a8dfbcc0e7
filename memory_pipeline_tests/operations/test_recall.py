"""What a search proposes, and what it never does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import numpy as np
import pytest

from memory_pipeline.core.cards import MemoryRecord
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
from memory_pipeline.core.profile import DEFAULT_PROFILE, profile_named
from memory_pipeline.core.projection import IndexFormat, project
from memory_pipeline.core.workspace import Workspace
from memory_pipeline.embedding.lexical import SparseVector, encoder_of
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.operations import hits
from memory_pipeline.operations.index import index
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.recall import OnEmbedderDown
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation
from memory_pipeline_tests.conftest import MakeWorkspace
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
from memory_pipeline_tests.operations.linked import open_workspace


@pytest.fixture
def filled(services: Services, workspace: Workspace) -> Workspace:
    """Three memories, indexed: ablation is mem-0001, readmission mem-0002, mortality mem-0003."""
    promote(services, workspace.slug, [ABLATION, READMISSION, MORTALITY])
    drain(services, workspace.slug)
    return workspace


@pytest.fixture(scope="module")
def settled(services: Services) -> Iterator[Workspace]:
    """The same for tests that change no card."""
    with open_workspace(services) as slug:
        promote(services, slug, [ABLATION, READMISSION, MORTALITY])
        drain(services, slug)
        yield Workspace(slug=slug, title="Test", language="it", default_database="cardio")


@pytest.mark.parametrize(
    ("question", "card"),
    [
        ("Quante ablazioni sono state fatte nel 2023?", "mem-0001"),
        ("Quanti nuovi ricoveri entro 30 giorni?", "mem-0002"),
        ("How many patients died in hospital?", "mem-0003"),
    ],
)
def test_the_memory_is_found_in_either_language(
    services: Services, settled: Workspace, question: str, card: str
) -> None:
    assert found(ask(services, settled.slug, question))[0] == card


def test_the_answer_is_the_current_row_with_its_scores_and_sources(services: Services, settled: Workspace) -> None:
    best = ask(services, settled.slug, "ablazione transcatetere", limit=1).proposals[0]

    assert (best.rank, best.card.id, best.card.detail) == (1, "mem-0001", ABLATION["detail"])
    assert best.sources == ("s1:seq:1",)
    assert best.scores.dense is not None
    assert best.scores.bm25 > 0
    profile, words = profile_named(DEFAULT_PROFILE), best.scores.bm25**2
    share = profile.lexical_weight * words / (words + profile.lexical_half**2)
    assert best.score == best.scores.fused == pytest.approx(best.scores.dense + share, abs=1e-5)


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


@pytest.fixture(scope="module")
def placed(services: Services) -> Iterator[str]:
    """Memories that differ in where they hold, each named after that."""
    procedures = {"database": "cardio", "schema": "public", "table": "FACT_Procedure"}
    fields: dict[str, dict[str, Any]] = {
        "anywhere": {},
        "database": {"dependencies": [{"database": "cardio"}]},
        "other database": {"dependencies": [{"database": "other"}]},
        "other schema": {"dependencies": [{**procedures, "schema": "archive"}]},
        "table": {"dependencies": [procedures]},
        "other table": {"dependencies": [{**procedures, "table": "fact_other"}]},
        "column": {"dependencies": [{**procedures, "column": "anno"}]},
        "two": {
            "dependencies": [{**procedures, "table": "t1"}, {"database": "other", "schema": "public", "table": "t2"}]
        },
        "scope": {"scope": ["budget"]},
        "concepts": {"concepts": ["Aritmia", "catetere"]},
    }
    with open_workspace(services) as slug:
        promote(services, slug, [{"subject": name, "detail": "ablazione", **card} for name, card in fields.items()])
        drain(services, slug)
        yield slug


ANYWHERE = {"anywhere", "scope", "concepts"}


@pytest.mark.parametrize(
    ("filters", "subjects"),
    [
        ({}, {"database", "table", "other table", "column", "two"} | ANYWHERE),
        ({"table": "fact_procedure"}, {"database", "table", "column"} | ANYWHERE),
        ({"table": "fact_procedure", "column": "anno"}, {"database", "table", "column"} | ANYWHERE),
        ({"table": "fact_procedure", "column": "mese"}, {"database", "table"} | ANYWHERE),
        ({"table": "t2"}, {"database"} | ANYWHERE),
        ({"table": "t2", "scope": ["Budget"]}, {"database"} | ANYWHERE),
        ({"table": "t2", "scope": ["consuntivo"]}, {"database", "anywhere", "concepts"}),
        ({"concepts": ["aritmia", "altro"]}, {"concepts"}),
        ({"concepts": ["ricovero"]}, set()),
        ({"kind": "exemplar"}, set()),
    ],
)
def test_a_memory_is_found_where_it_holds(
    services: Services, placed: str, filters: dict[str, Any], subjects: set[str]
) -> None:
    answer = ask(services, placed, "ablazione", filters=SearchFilters.parse(filters), limit=20)

    assert {proposal.card.subject for proposal in answer.proposals} == subjects
    assert answer.excluded == {}, "the index leaves the others out itself"


@pytest.mark.parametrize("name", ["database", "schema", "workspace", "language"])
def test_a_filter_cannot_replace_what_the_runtime_fixes(name: str) -> None:
    with pytest.raises(FilterNotAllowed, match=name):
        SearchFilters.parse({name: "other"})


def test_what_the_session_settled_is_not_proposed_again(services: Services, settled: Workspace) -> None:
    append(
        services,
        settled.slug,
        "later",
        [
            line(subject="ablazione", detail="come prima", rationale="scelta mem-0001"),
            line("memory_rejected", subject="mem-0002"),
        ],
    )

    answer = ask(services, settled.slug, "ablazione, riammissione, mortalità", session="later")

    assert found(answer) == ["mem-0003"]
    assert set(answer.decided) == {"mem-0001", "mem-0002"}


def test_a_retracted_choice_is_proposed_again(services: Services, settled: Workspace) -> None:
    append(
        services,
        settled.slug,
        "later-still",
        [
            line(subject="ablazione", detail="come prima", memories=["mem-0001"]),
            line("decision_retracted", detail="seq:1"),
        ],
    )

    assert "mem-0001" in found(ask(services, settled.slug, "ablazione", session="later-still"))


@pytest.mark.parametrize(
    ("question", "error"),
    [("", BadQuestion), ("  \n ", BadQuestion), ("x" * 100_000, BadQuestion), ("a\x00b", BadText), ("\ud800", BadText)],
)
def test_a_question_that_cannot_be_asked_is_refused_by_name(
    services: Services, settled: Workspace, question: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        ask(services, settled.slug, question)


@pytest.mark.parametrize("limit", [0, -1, 1000])
def test_a_limit_that_cannot_be_served_is_refused(services: Services, settled: Workspace, limit: int) -> None:
    with pytest.raises(BadInput, match=str(limit)):
        ask(services, settled.slug, "ablazione", limit=limit)


def test_a_question_of_stop_words_alone_is_answered_by_the_dense_branch(services: Services, settled: Workspace) -> None:
    answer = ask(services, settled.slug, "che cosa è?")

    assert len(answer.proposals) == 3
    assert all(proposal.scores.bm25 == 0 for proposal in answer.proposals)


def test_a_filter_that_leaves_nothing_gives_an_empty_answer(services: Services, settled: Workspace) -> None:
    answer = ask(services, settled.slug, "ablazione", place=Dependency(database="other"))

    assert len(answer.proposals) == 3, "cards without dependencies serve every place"
    assert ask(services, settled.slug, "ablazione", filters=SearchFilters(concepts=("niente",))).proposals == ()


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


def test_an_embedder_that_is_down_is_an_error_by_default(services: Services, settled: Workspace) -> None:
    with (
        with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as broken,
        pytest.raises(EmbedderUnavailable),
    ):
        ask(broken, settled.slug, "ablazione")


def test_an_embedder_that_is_down_leaves_the_lexical_branch_where_asked_for(
    services: Services, settled: Workspace
) -> None:
    with with_settings(services, ollama_url=f"http://127.0.0.1:{closed_port()}") as broken:
        answer = ask(broken, settled.slug, "ablazione", on_embedder_down=OnEmbedderDown.LEXICAL)

    assert answer.degraded is not None
    assert found(answer) == ["mem-0001"]
    assert answer.proposals[0].scores.dense is None


def test_a_qdrant_that_is_down_is_an_error(services: Services, settled: Workspace) -> None:
    with (
        with_settings(services, qdrant_url=f"http://127.0.0.1:{closed_port()}") as broken,
        pytest.raises(IndexUnavailable),
    ):
        ask(broken, settled.slug, "ablazione")


def test_a_question_without_a_word_to_look_for_is_answered_by_the_server_all_the_same(
    services: Services, settled: Workspace
) -> None:
    dead = f"http://127.0.0.1:{closed_port()}"
    with with_settings(services, ollama_url=dead) as broken:
        assert found(ask(broken, settled.slug, "il la", on_embedder_down=OnEmbedderDown.LEXICAL)) == []
    with with_settings(services, ollama_url=dead, qdrant_url=dead) as broken, pytest.raises(IndexUnavailable):
        ask(broken, settled.slug, "il la", on_embedder_down=OnEmbedderDown.LEXICAL)


def test_a_lost_collection_is_an_error_until_it_is_filled_again(services: Services, filled: Workspace) -> None:
    with services.database.transaction(Role.READER, filled.slug) as tx:
        generation = generations.serving(tx, filled.slug)
    assert generation is not None
    services.index.drop(generation.collection)

    with pytest.raises(CollectionMissing, match=generation.collection):
        ask(services, filled.slug, "ablazione")

    index(services, filled.slug)
    assert found(ask(services, filled.slug, "ablazione"))[0] == "mem-0001"


def test_the_format_of_the_serving_generation_is_told_by_the_store(services: Services, settled: Workspace) -> None:
    with services.database.transaction(Role.READER, settled.slug) as tx:
        generation = generations.serving(tx, settled.slug)

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


def test_a_search_without_any_embedder_is_lexical_where_asked_for(services: Services, settled: Workspace) -> None:
    with with_settings(
        services, ollama_url=None, state=Path("/nowhere"), secrets_dir=services.settings.secrets
    ) as alone:
        answer = ask(alone, settled.slug, "ablazione", on_embedder_down=OnEmbedderDown.LEXICAL)

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


# --- enough results, whatever stands before them -----------------------------------------------------------------


def test_the_limit_is_filled_behind_a_thousand_nearer_points_that_may_not_come(
    services: Services, filled: Workspace
) -> None:
    """Half are copies of a real card's point, half of cards that the registry does not know; one holds elsewhere."""
    generation, card = _serving(services, filled), _card(services, filled, "mem-0001")
    vector = services.embedder.embed_query(generation.format.model, "ablazione", dimensions=512)
    words = encoder_of("it", profile_named(generation.format.profile)).query("ablazione")
    copy = project(card, generation.format)
    unknown = [
        project(card.model_copy(update={"id": f"mem-{number:04d}"}), generation.format) for number in range(4, 504)
    ]
    copies = [copy.model_copy(update={"point_id": uuid5(NAMESPACE_URL, str(number))}) for number in range(500)]
    services.index.upsert(generation.collection, [IndexPoint(planted, vector, words) for planted in unknown + copies])

    answer = ask(services, filled.slug, "ablazione", limit=3)

    assert set(found(answer)) == {"mem-0001", "mem-0002", "mem-0003"}
    assert answer.excluded == {"missing": 500, "not_current": 500}
    assert answer.limits == ()


def test_a_search_that_stops_early_says_so(
    services: Services, filled: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for card_id in ("mem-0001", "mem-0002"):
        revise(services, filled.slug, card_id, detail="non ancora propagato")
    monkeypatch.setattr(hits, "MOST_FETCHED", 2)

    stopped = ask(services, filled.slug, "ablazione, riammissione", limit=1)
    monkeypatch.setattr(hits, "MOST_FETCHED", 8)
    whole = ask(services, filled.slug, "ablazione, riammissione", limit=1)

    assert (stopped.limits, whole.limits, found(whole)) == (("rounds",), (), ["mem-0003"])


def test_fewer_cards_than_wanted_are_no_bound(services: Services, settled: Workspace) -> None:
    answer = ask(services, settled.slug, "ablazione", limit=100)

    assert (len(answer.proposals), answer.limits, answer.excluded) == (3, (), {})


# --- what a session settled --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "left_out"),
    [
        pytest.param([line("memory_rejected", subject="x", memories=["mem-0001"])], True, id="rejected by name"),
        pytest.param([line("memory_rejected", subject="x", detail="non serve mem-0001")], True, id="rejected in words"),
        pytest.param([line("memory_deselected", subject="mem-0001")], False, id="deselected"),
        pytest.param(
            [line("memory_rejected", subject="mem-0001"), line("decision_retracted", detail="seq:1")],
            False,
            id="rejected, and that retracted",
        ),
        pytest.param(
            [
                line("memory_rejected", subject="mem-0001"),
                line("decision_retracted", detail="seq:1"),
                line("decision_retracted", detail="seq:2"),
            ],
            True,
            id="rejected, and the retraction retracted",
        ),
        pytest.param(
            [
                line(subject="x", detail="y", rationale="da mem-0001", phase="F2"),
                line("phase_rolled_back", detail="phase:F2", phase="F3"),
            ],
            False,
            id="chosen in a phase that was rolled back",
        ),
        pytest.param([line("table_promoted", subject="mem-0001")], False, id="a table is no choice"),
        pytest.param([line(subject="x", detail="come in mem-00019 e xmem-0001")], False, id="another id"),
    ],
)
def test_what_a_session_decided_counts_as_long_as_it_is_effective(
    services: Services, settled: Workspace, lines: list[bytes], left_out: bool
) -> None:
    session = f"s-{uuid4().hex}"
    append(services, settled.slug, session, lines)

    answer = ask(services, settled.slug, "ablazione", session=session)

    assert ("mem-0001" not in found(answer)) is left_out
    assert answer.decided == (("mem-0001",) if left_out else ())


# --- fusion, languages, long texts -------------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", ["rrf", "dbsf"])
def test_the_other_fusions_are_a_setting(services: Services, settled: Workspace, fusion: str) -> None:
    with with_settings(services, fusion=fusion) as other:
        answer = ask(other, settled.slug, "Quante ablazioni con procedura transcatetere?")
        of_stop_words = ask(other, settled.slug, "che cosa è?")
        nothing = ask(other, settled.slug, "ablazioni", filters=SearchFilters(concepts=("niente",)))
    with with_settings(services, fusion=fusion, ollama_url=f"http://127.0.0.1:{closed_port()}") as broken:
        lexical = ask(broken, settled.slug, "ablazioni", on_embedder_down=OnEmbedderDown.LEXICAL)

    by_score = ask(services, settled.slug, "Quante ablazioni con procedura transcatetere?")
    assert found(answer)[0] == found(lexical)[0] == found(by_score)[0] == "mem-0001"
    assert answer.proposals[0].scores.fused != pytest.approx(by_score.proposals[0].scores.fused)
    assert answer.proposals[0].scores.dense == pytest.approx(by_score.proposals[0].scores.dense, abs=1e-5)
    assert (len(of_stop_words.proposals), nothing.proposals) == (3, ())


def test_words_are_stemmed_in_the_language_of_the_workspace(services: Services, make_workspace: MakeWorkspace) -> None:
    scores = {}
    for language in ("it", "en"):
        workspace = make_workspace(language=language)
        promote(services, workspace.slug, [{"subject": "degenza", "detail": "giorni di un paziente ricoverato"}])
        index(services, workspace.slug)
        (proposal,) = ask(services, workspace.slug, "pazienti ricoverati").proposals
        scores[language] = proposal.scores.bm25

    assert scores["it"] > 0
    assert scores["en"] == 0


def test_a_fact_at_the_end_of_a_long_text_is_found(services: Services, make_workspace: MakeWorkspace) -> None:
    """Neither branch cuts: by meaning alone, in words that the text does not have, and by words alone."""
    workspace = make_workspace()
    filler = " ".join(f"Il paragrafo {number} descrive la gestione ordinaria del magazzino." for number in range(200))
    fact = " La pressione arteriosa si misura da seduti dopo cinque minuti di riposo."
    promote(
        services, workspace.slug, [{"subject": "con", "detail": filler + fact}, {"subject": "senza", "detail": filler}]
    )
    index(services, workspace.slug)

    answer = ask(services, workspace.slug, "misurare la pressione arteriosa da seduti")

    cards = {item.card.subject: item.scores for item in answer.proposals}
    assert answer.proposals[0].card.subject == "con"
    assert (cards["con"].dense or 0) > (cards["senza"].dense or 0)
    assert cards["con"].bm25 > cards["senza"].bm25 == 0


# --- what an answer tells ----------------------------------------------------------------------------------------


def test_times_are_told_by_stage(services: Services, settled: Workspace) -> None:
    times = ask(services, settled.slug, "ablazione").timings

    assert min(times.embed, times.index, times.registry) > 0
    assert times.links == 0, "no card here has a link"
    assert times.total >= times.embed + times.index + times.registry


def test_a_collection_that_another_generation_replaced_meanwhile_is_found_again(
    services: Services, settled: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is read, then the collection that it names is dropped, as after a rebuild."""
    real, asked = _serving(services, settled), []

    def lagging(tx: Any, workspace: str) -> Generation | None:
        asked.append(workspace)
        return real._replace(collection="gone") if len(asked) == 1 else real

    monkeypatch.setattr(generations, "serving", lagging)

    assert found(ask(services, settled.slug, "ablazione"))[0] == "mem-0001"
    assert len(asked) == 2


def _serving(services: Services, workspace: Workspace) -> Generation:
    with services.database.transaction(Role.READER, workspace.slug) as tx:
        generation = generations.serving(tx, workspace.slug)
    assert generation is not None
    return generation


def _card(services: Services, workspace: Workspace, card_id: str) -> MemoryRecord:
    with services.database.transaction(Role.READER, workspace.slug) as tx:
        return cards.get_many(tx, workspace.slug, [card_id])[card_id]
