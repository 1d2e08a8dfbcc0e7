"""What links bring to an answer, and what they never do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.context import SearchContext, SearchFilters
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.errors import BadInput
from memory_pipeline.core.projection import project
from memory_pipeline.core.ranking import FACTORS, Step
from memory_pipeline.embedding.lexical import SparseVector
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.operations import links
from memory_pipeline.operations import recall as recall_module
from memory_pipeline.operations.index import index
from memory_pipeline.operations.ledger import append
from memory_pipeline.operations.links import MAX_VISITS, reason_to_refuse
from memory_pipeline.operations.recall import OnEmbedderDown, Proposal, Recall, SearchRequest, recall
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations
from memory_pipeline.store import recall as store
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import ProjectionState
from memory_pipeline.store.recall import Reading
from memory_pipeline_tests.core.builders import card
from memory_pipeline_tests.flows import closed_port, line, revise, with_settings
from memory_pipeline_tests.operations.linked import Planted, open_workspace, plant

CHAIN = 50
VERSIONS = 9
CLAIMED = 5

STORIES = {
    # closure: a question on invoices finds the first; the other two say nothing of them
    "fattura": Planted("closure", "la fattura emessa al cliente per la commessa", ["requires esercizio"]),
    "esercizio": Planted("closure", "anno contabile da luglio a giugno", ["requires calendario"]),
    "calendario": Planted("closure", "giorni lavorativi senza le feste"),
    "altra fattura": Planted("closure", "fattura emessa al cliente come acconto"),
    # gaps: all that can keep a required card away
    "monco": Planted(
        "gaps",
        "quello che non si ha",
        [
            *("requires mem-9999", "requires seq:7", "requires cancellato", "requires ritirato", "requires in attesa"),
            *("requires altrove", "requires esempio", "requires monco", "requires scelto", "related altrove"),
        ],
    ),
    "cancellato": Planted("gaps", "una regola tolta"),
    "ritirato": Planted("gaps", "una regola fuori uso"),
    "in attesa": Planted("gaps", "una regola non ancora propagata"),
    "altrove": Planted("elsewhere", "una regola di un altro database"),
    "esempio": Planted("gaps", "una domanda risolta", kind=CardKind.EXEMPLAR),
    "scelto": Planted("gaps", "una regola che la sessione ha", ["requires dietro lo scelto"]),
    "dietro lo scelto": Planted("elsewhere", "una regola dietro quella scelta"),
    # supersession
    "margine vecchio": Planted("newer", "margine lordo sul venduto"),
    "margine nuovo": Planted("newer", "utile diviso ricavi", ["supersedes margine vecchio", "requires ricavi"]),
    "margine nuovissimo": Planted("newer", "risultato sul fatturato", ["supersedes margine nuovo"]),
    "ricavi": Planted("newer", "vendite al netto degli sconti"),
    "ricavi annullati": Planted("newer", "vendite tolte", ["supersedes ricavi"]),
    "ricavi altrove": Planted("elsewhere", "vendite di altri", ["supersedes ricavi"]),
    "ricavi in esempio": Planted("newer", "vendite risolte", ["supersedes ricavi"], kind=CardKind.EXEMPLAR),
    "ricavi in attesa": Planted("newer", "vendite future", ["supersedes ricavi"]),
    "serve il cancellato": Planted("replaced", "chi si appoggia a una regola tolta", ["requires tolto"]),
    "tolto": Planted("replaced", "la regola tolta"),
    "rimesso": Planted("replaced", "la regola che la sostituisce", ["supersedes tolto"]),
    **{
        f"versione {number}": Planted(
            "versions", f"la soglia, versione {number}", [f"supersedes versione {number - 1}"]
        )
        for number in range(2, VERSIONS + 1)
    },
    "versione 1": Planted("versions", "la soglia, versione 1"),
    # cards that other databases claim to supersede
    **{f"conteso {n}": Planted("claimed", f"il conteso {n}", [f"requires base {n}"]) for n in range(CLAIMED)},
    **{f"base {n}": Planted("claimed", f"base {n}") for n in range(CLAIMED)},
    "successore": Planted("claimed", "chi viene dopo il conteso 0", ["supersedes conteso 0"]),
    **{
        f"pretesa {number}": Planted("elsewhere", f"pretesa {number}", [f"supersedes conteso {number % CLAIMED}"])
        for number in range(20 * CLAIMED)
    },
    # a point that somebody changed
    "fiducioso": Planted("tampered", "chi si appoggia a un punto manomesso", ["requires manomesso"]),
    "manomesso": Planted("tampered", "il punto manomesso"),
    # circles
    "uovo": Planted("circle", "viene dalla gallina", ["requires gallina", "supersedes gallina", "requires uovo"]),
    "gallina": Planted("circle", "viene dall'uovo", ["requires uovo", "supersedes uovo", "related gallina"]),
    # bounds
    **{
        f"anello {number}": Planted("chain", f"anello {number}", [f"requires anello {number + 1}"])
        for number in range(1, CHAIN)
    },
    f"anello {CHAIN}": Planted("chain", "ultimo anello"),
    "mozzo": Planted("hub", "il mozzo della ruota", [f"requires raggio {number}" for number in range(MAX_VISITS + 10)]),
    **{f"raggio {number}": Planted("hub", f"un raggio {number}") for number in range(MAX_VISITS + 10)},
    # related, searched by words alone
    "sepsi": Planted("related", "infezione con danno d'organo", ["related lattato", "related shock"]),
    "lattato": Planted("related", "acido misurato nel sangue", ["requires unità"]),
    "shock": Planted("related", "pressione sotto 65 mmHg"),
    "unità": Planted("related", "millimoli per litro"),
    # families
    "memoria": Planted("family", "il concetto di reddito", ["requires prova", "related esemplare"]),
    "esemplare": Planted("family", "domanda sul reddito risolta", ["requires memoria"], kind=CardKind.EXEMPLAR),
    "prova": Planted("family", "fonte attiva sul reddito", kind=CardKind.EVIDENCE),
    "bozza": Planted("family", "fonte in bozza sul reddito", kind=CardKind.EVIDENCE),
}


class Web(NamedTuple):
    services: Services
    workspace: str
    ids: dict[str, str]

    def ask(self, question: str, database: str, **request: Any) -> Recall:
        services = request.pop("services", self.services)
        fields = {"place": Dependency(database=database), **request}
        return recall(services, SearchRequest(workspace=self.workspace, question=question, **fields))

    def names(self, answer: Recall) -> list[str]:
        return [item.card.subject for item in answer.proposals]

    def gaps(self, answer: Recall, name: str) -> dict[str, str]:
        """What a card is said to lack, by the names of the cards."""
        names = {card: told for told, card in self.ids.items()}
        return {names.get(gap.target, gap.target): gap.reason for gap in self.proposal(answer, name).incomplete}

    def proposal(self, answer: Recall, name: str) -> Proposal:
        return next(item for item in answer.proposals if item.card.subject == name)


@pytest.fixture(scope="module")
def web(services: Services) -> Iterator[Web]:
    """All stories in one workspace, indexed; then some cards change past the index."""
    with open_workspace(services) as slug:
        ids = plant(services, slug, STORIES)
        for name, status in (
            ("cancellato", "deleted"),
            ("ritirato", "retired"),
            ("bozza", "draft"),
            ("tolto", "deleted"),
        ):
            revise(services, slug, ids[name], status=status)
        revise(services, slug, ids["ricavi annullati"], status="deleted")
        index(services, slug)
        for name in ("in attesa", "ricavi in attesa"):
            revise(services, slug, ids[name], detail="cambiato da poco")
        _tamper(services, slug, ids["manomesso"])
        yield Web(services, slug, ids)


# --- what comes along --------------------------------------------------------------------------------------------


def test_what_a_hit_requires_comes_along_beyond_the_limit_with_its_own_scores_and_its_path(web: Web) -> None:
    answer = web.ask("fattura emessa al cliente per la commessa", "closure", limit=1)
    everything = web.ask("fattura emessa al cliente per la commessa", "closure", limit=4)

    assert web.names(answer) == ["fattura", "esercizio", "calendario"]
    ids = [web.ids[name] for name in web.names(answer)]
    assert [item.reached_by for item in answer.proposals] == [
        "search",
        f"{ids[0]} requires {ids[1]}",
        f"{ids[0]} requires {ids[1]} requires {ids[2]}",
    ]
    assert [item.rank for item in answer.proposals] == [1, 2, 3]
    for item in answer.proposals:
        as_hit = web.proposal(everything, item.card.subject)
        assert item.scores.dense == pytest.approx(as_hit.scores.dense, abs=1e-5)
        assert (item.scores.bm25, item.scores.fused) == pytest.approx(
            (as_hit.scores.bm25, as_hit.scores.fused), abs=1e-5
        )
        assert (item.incomplete, as_hit.reached_by) == ((), "search")
    best = answer.proposals[0].score
    assert answer.proposals[1].score == pytest.approx(
        max(FACTORS[Step.REQUIRES] * best, answer.proposals[1].scores.fused or 0)
    )
    assert answer.limits == ()


def test_hits_and_linked_cards_are_ranked_together_and_the_same_each_time(web: Web) -> None:
    question = "fattura emessa al cliente per la commessa"
    first, second = (web.ask(question, "closure", limit=3).model_dump(exclude={"timings"}) for _ in range(2))

    assert first == second
    scores = [proposal["score"] for proposal in first["proposals"]]
    assert scores == sorted(scores, reverse=True)
    assert {proposal["card"]["subject"] for proposal in first["proposals"]} == {
        "fattura",
        "altra fattura",
        "esercizio",
        "calendario",
    }


def test_related_cards_only_fill_free_places(web: Web) -> None:
    """Words alone find one card here, so that there are free places; with an embedder every card is a hit."""
    with with_settings(web.services, ollama_url=f"http://127.0.0.1:{closed_port()}") as broken:
        lexical = {"services": broken, "on_embedder_down": OnEmbedderDown.LEXICAL}
        assert web.names(web.ask("sepsi", "related", limit=1, **lexical)) == ["sepsi"]
        assert set(web.names(web.ask("sepsi", "related", limit=2, **lexical))) == {"sepsi", "lattato", "unità"}
        answer = web.ask("sepsi", "related", limit=3, **lexical)

    assert set(web.names(answer)) == {"sepsi", "lattato", "unità", "shock"}
    assert web.proposal(answer, "shock").reached_by == f"{web.ids['sepsi']} related {web.ids['shock']}"
    assert web.proposal(answer, "shock").score == pytest.approx(FACTORS[Step.RELATED] * answer.proposals[0].score)
    assert web.proposal(answer, "shock").scores.dense is None


# --- what does not -----------------------------------------------------------------------------------------------


def test_what_cannot_come_along_makes_its_source_incomplete_with_the_reason(web: Web) -> None:
    append(web.services, web.workspace, "chose", [line(subject="x", detail="y", rationale=f"da {web.ids['scelto']}")])

    answer = web.ask("quello che non si ha", "gaps", session="chose", limit=1)

    assert web.names(answer) == ["monco"]
    assert web.gaps(answer, "monco") == {
        "mem-9999": "missing",
        "seq:7": "not_promoted",
        "cancellato": "deleted",
        "ritirato": "not_active",
        "in attesa": "pending",
        "altrove": "out_of_context",
        "esempio": "other_kind",
    }
    assert answer.decided == (web.ids["scelto"],)


def test_a_card_whose_point_was_seen_to_be_wrong_does_not_come_by_a_link_either(web: Web) -> None:
    """The registry still has it as acknowledged."""
    answer = web.ask("chi si appoggia a un punto manomesso", "tampered", limit=1)

    assert (web.names(answer), answer.excluded) == (["fiducioso"], {"not_current": 1})
    assert web.gaps(answer, "fiducioso") == {"manomesso": "pending"}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        pytest.param(ProjectionState(2, "a", "a", None, None), None, id="seen as it must be"),
        pytest.param(ProjectionState(2, "a", "b", None, None), "pending", id="last seen with another hash"),
        pytest.param(ProjectionState(2, "a", None, None, None), "pending", id="never seen"),
        pytest.param(ProjectionState(1, "a", "a", None, None), "pending", id="seen at an older revision"),
        pytest.param(ProjectionState(2, None, None, None, None), "pending", id="to have no point"),
        pytest.param(None, "pending", id="unknown to the generation"),
    ],
)
def test_a_linked_card_is_current_where_its_point_was_last_seen_as_it_must_be(
    state: ProjectionState | None, reason: str | None
) -> None:
    reading = Reading(card(revision=2), state, superseded_by=(), sources=())
    assert reason_to_refuse(reading, SearchContext()) == reason


def test_a_link_narrows_as_the_filters_do(web: Web) -> None:
    answer = web.ask("fattura emessa al cliente", "closure", limit=1, filters=SearchFilters(concepts=("niente",)))
    assert answer.proposals == ()
    assert web.gaps(web.ask("scelto", "gaps", limit=1), "scelto") == {"dietro lo scelto": "out_of_context"}


def test_a_link_grants_no_other_family(web: Web) -> None:
    memories = web.ask("reddito", "family", limit=10)
    exemplars = web.ask("reddito", "family", limit=10, filters=SearchFilters.parse({"kind": "exemplar"}))
    evidence = web.ask("reddito", "family", limit=10, filters=SearchFilters(kinds=(CardKind.EVIDENCE,)))
    both = web.ask("reddito", "family", limit=1, filters=SearchFilters(kinds=(CardKind.EXEMPLAR, CardKind.MEMORY)))

    assert web.names(memories) == ["memoria"]
    assert web.gaps(memories, "memoria") == {"prova": "other_kind"}
    assert web.names(exemplars) == ["esemplare"]
    assert web.gaps(exemplars, "esemplare") == {"memoria": "other_kind"}
    assert web.names(evidence) == ["prova"], "a draft is no evidence yet"
    assert set(web.names(both)) <= {"memoria", "esemplare"}


# --- newer cards -------------------------------------------------------------------------------------------------


def test_a_superseded_card_gives_its_place_and_its_score_to_the_newest(web: Web) -> None:
    answer = web.ask("margine lordo sul venduto", "newer", limit=1)

    assert web.names(answer) == ["margine nuovissimo"], "and what the card between required is not required any more"
    assert answer.proposals[0].score > (answer.proposals[0].scores.fused or 0)
    assert answer.excluded["superseded"] >= 1
    old, new, newest = (web.ids[f"margine {age}"] for age in ("vecchio", "nuovo", "nuovissimo"))
    assert not {old, new} & {item.card.id for item in answer.proposals}
    assert answer.proposals[0].reached_by in ("search", f"{old} superseded by {new} superseded by {newest}")


def test_a_card_that_may_not_be_proposed_supersedes_nobody(web: Web) -> None:
    """One is deleted, one holds elsewhere, one is of another kind, one still waits for the index."""
    answer = web.ask("ricavi: vendite al netto degli sconti", "newer", limit=1)

    assert web.names(answer) == ["ricavi"]


def test_cards_that_may_not_be_shown_take_neither_a_place_nor_a_step(web: Web) -> None:
    """Twenty cards of another database claim each place; one card of this database has one."""
    answer = web.ask("il conteso", "claimed", limit=CLAIMED)

    assert {"successore", *(f"conteso {n}" for n in range(1, CLAIMED))} <= set(web.names(answer))
    assert "conteso 0" not in web.names(answer)
    assert {f"base {n}" for n in range(1, CLAIMED)} <= set(web.names(answer))
    assert answer.limits == ()
    assert web.names(web.ask("il conteso 1", "claimed", limit=1, depth=1)) == ["conteso 1", "base 1"]


@pytest.mark.parametrize("limit", [1, VERSIONS])
def test_the_newest_version_comes_however_many_lie_between(web: Web, limit: int) -> None:
    answer = web.ask("la soglia, versione 1", "versions", limit=limit, depth=1)

    assert web.names(answer) == [f"versione {VERSIONS}"]
    assert answer.limits == ()


def test_a_newer_card_stands_in_for_a_required_one_that_is_gone(web: Web) -> None:
    answer = web.ask("chi si appoggia a una regola tolta", "replaced", limit=1)

    assert web.names(answer)[0] == "serve il cancellato"
    assert set(web.names(answer)) == {"serve il cancellato", "rimesso"}
    assert web.gaps(answer, "serve il cancellato") == {}


def test_a_newer_card_that_the_session_has_stands_in_the_way_of_the_older_one(web: Web) -> None:
    newest = web.ids["margine nuovissimo"]
    append(web.services, web.workspace, "has", [line(subject="x", detail="y", memories=[newest])])

    answer = web.ask("margine lordo sul venduto", "newer", limit=10, session="has")

    assert not {"margine vecchio", "margine nuovo", "margine nuovissimo"} & set(web.names(answer))


# --- bounds ------------------------------------------------------------------------------------------------------


def test_circles_and_links_to_oneself_are_harmless(web: Web) -> None:
    answer = web.ask("uovo e gallina", "circle", limit=1)

    assert sorted(web.names(answer)) == ["gallina", "uovo"]
    assert all(item.incomplete == () for item in answer.proposals)
    assert answer.limits == ()


@pytest.mark.parametrize("depth", [1, 4, 8])
def test_links_are_followed_to_a_depth_with_one_query_a_level(
    web: Web, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = _counted_reads(monkeypatch)

    answer = web.ask("anello 1", "chain", limit=1, depth=depth)

    first = min(int(name.split()[1]) for name in web.names(answer))
    assert sorted(web.names(answer)) == sorted(f"anello {first + step}" for step in range(len(answer.proposals)))
    assert len(answer.proposals) == depth + 1
    assert answer.limits == ("depth",)
    incomplete = [item for item in answer.proposals if item.incomplete]
    assert [gap.reason for item in incomplete for gap in item.incomplete] == ["depth"]
    assert len(queries) <= 1 + depth


def test_links_are_not_followed_where_nobody_wants_them(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = _counted_reads(monkeypatch)

    answer = web.ask("fattura emessa al cliente per la commessa", "closure", limit=1, depth=0)

    assert len(queries) == 1
    assert web.names(answer) == ["fattura"]
    assert web.gaps(answer, "fattura") == {"esercizio": "depth"}
    assert answer.limits == ("depth",)


def test_a_search_without_links_reads_the_registry_once(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = _counted_reads(monkeypatch)

    web.ask("una regola di un altro database", "elsewhere", limit=2)

    assert len(queries) == 1


def test_the_newer_cards_that_are_looked_at_are_bounded_and_the_bound_is_told(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_NEWER", 3)

    answer = web.ask("il conteso", "claimed", limit=CLAIMED)

    assert answer.limits == ("visits",)


def test_the_cards_that_links_lead_to_are_bounded_and_the_bound_is_told(web: Web) -> None:
    answer = web.ask("il mozzo della ruota", "hub", limit=1)

    assert answer.limits == ("visits",)
    missing = web.gaps(answer, "mozzo")
    assert set(missing.values()) == {"visits"}
    assert len(missing) + len(answer.proposals) == MAX_VISITS + 11
    assert len(answer.proposals) > MAX_VISITS


@pytest.mark.parametrize("depth", [-1, 9])
def test_a_depth_that_cannot_be_served_is_refused(web: Web, depth: int) -> None:
    with pytest.raises(BadInput, match=str(depth)):
        web.ask("anello", "chain", depth=depth)


def _tamper(services: Services, workspace: str, card_id: str) -> None:
    """Write another text over a card's point, behind the pipeline's back."""
    with services.database.transaction(Role.READER, workspace) as tx:
        generation = generations.serving(tx, workspace)
        current = cards.get_many(tx, workspace, [card_id])[card_id]
    assert generation is not None
    changed = project(current.model_copy(update={"detail": "un altro testo"}), generation.format)
    vector = np.full(generation.format.dimensions, 0.1, dtype=np.float32)
    services.index.upsert(generation.collection, [IndexPoint(changed, vector, SparseVector((), ()))])


def _counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of cards that each query of the registry asks for, as they are asked."""
    queries: list[int] = []
    read = store.read

    def counting(tx: Any, workspace: str, generation: int, ids: Any) -> Any:
        queries.append(len(ids))
        return read(tx, workspace, generation, ids)

    monkeypatch.setattr(recall_module, "read", counting)
    return queries
