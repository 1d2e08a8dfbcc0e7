"""The whole story, on any stack: found in its place, gone once deleted, rebuilt from the registry.

A rule on orders and the card on granularity that it requires come from one session; beside them stand cards that say
the same and must never be found here.
"""

from __future__ import annotations

from typing import Any

from memory_pipeline.core.context import SearchFilters, search_context
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.profile import profile_named
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.queries import Branch, HybridQuery
from memory_pipeline.operations.curate import delete_card
from memory_pipeline.operations.index import index
from memory_pipeline.operations.propagate import propagate_at_once
from memory_pipeline.operations.recall import Recall
from memory_pipeline.operations.services import Services
from memory_pipeline.store import generations
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation
from memory_pipeline_tests.conftest import MakeWorkspace
from memory_pipeline_tests.flows import ask, found, promote

QUESTION = "chiave commessa fra esercizi"
PLACE = Dependency(database="erp", schema_="dbo")
FILTERS = SearchFilters(table="f_commesse", scope=("consuntivo",))

BRANCHES: tuple[Branch, ...] = ("dense", "bm25")
RULE, GRANULARITY, OTHER_DATABASE, OTHER_SCOPE, COMBINED = (f"mem-{number:04d}" for number in range(1, 6))


def concept(subject: str, detail: str, *places: str, **fields: Any) -> dict[str, Any]:
    names = ("database", "schema", "table", "column")
    return {
        "subject": subject,
        "detail": detail,
        "dependencies": [dict(zip(names, place.split("/"), strict=False)) for place in places],
        **fields,
    }


CONCEPTS = [
    concept(
        "chiave commessa",
        "fra esercizi la chiave della commessa è la coppia codice commessa ed esercizio: il codice da solo si ripete",
        "erp/dbo/f_commesse/cod_commessa",
        "erp/dbo/f_commesse/esercizio",
        scope=["consuntivo"],
        links=[{"relation": "requires", "target": "seq:2"}],
    ),
    concept("granularità dei movimenti", "una riga per movimento contabile, non per documento", "erp/dbo/f_commesse"),
    concept("chiave commessa", "fra esercizi la chiave della commessa è il numero pratica", "crm/dbo/f_commesse"),
    concept(
        "chiave commessa",
        "fra esercizi la chiave della commessa è la voce di piano",
        "erp/dbo/f_commesse",
        scope=["budget"],
    ),
    concept(
        "chiave commessa",
        "fra esercizi la chiave della commessa è nell'archivio",
        "erp/archivio/x",
        "crm/dbo/f_commesse",
    ),
]


def test_the_story(services: Services, make_workspace: MakeWorkspace) -> None:
    slug = make_workspace(default_database="erp", default_schema="dbo", title="Controllo di gestione").slug
    promote(services, slug, CONCEPTS)
    assert index(services, slug).drain.settled

    best = search(services, slug, limit=1)
    assert found(best) == [RULE, GRANULARITY], "the second comes along by its link"
    assert best.proposals[1].reached_by == f"{RULE} requires {GRANULARITY}"
    assert found(search(services, slug, limit=10)) == [RULE, GRANULARITY]
    assert {OTHER_DATABASE, OTHER_SCOPE, COMBINED} <= set(found(ask(services, slug, QUESTION, place=None, limit=10)))

    every_way = {way: refs for fusion in ("score", "rrf", "dbsf") for way, refs in ways(services, slug, fusion).items()}
    assert every_way == {way: [RULE, GRANULARITY] for way in ("dense", "bm25", "score", "rrf", "dbsf")}

    revision = best.proposals[0].card.revision
    delete_card(services, slug, RULE, revision)
    assert found(search(services, slug, limit=10)) == [GRANULARITY], "gone before the index has followed"
    assert propagate_at_once(services, slug).settled
    after = search(services, slug, limit=10)
    assert (found(after), after.excluded) == ([GRANULARITY], {})

    services.index.drop(serving(services, slug).collection)
    index(services, slug)
    assert found(search(services, slug, limit=10)) == [GRANULARITY]
    states = [state for page in services.index.scroll(serving(services, slug).collection, 100) for state in page]
    assert sorted(state.ref for state in states) == [GRANULARITY, OTHER_DATABASE, OTHER_SCOPE, COMBINED]


def search(services: Services, workspace: str, *, limit: int) -> Recall:
    """The question, where it is asked."""
    return ask(services, workspace, QUESTION, place=PLACE, filters=FILTERS, limit=limit)


def ways(services: Services, workspace: str, fusion: Any) -> dict[str, list[str]]:
    """What the index alone finds, by each branch and by both together, best first."""
    generation = serving(services, workspace)
    profile = profile_named(generation.format.profile)
    query = HybridQuery(
        dense=services.embedder.embed_query(
            generation.format.model, profile.dense_query(QUESTION), dimensions=generation.format.dimensions
        ),
        lexical=encoder_of(generation.format.language, profile).query(profile.lexical_query(QUESTION)),
        filter=SearchFilter.of(search_context(PLACE, FILTERS)),
        limit=10,
        prefetch=profile.prefetch,
        lexical_weight=profile.lexical_weight,
        lexical_half=profile.lexical_half,
        method=fusion,
    )
    found_by = {branch: services.index.search_branch(generation.collection, query, branch) for branch in BRANCHES}
    hits = {**found_by, fusion: services.index.search(generation.collection, query)}
    return {way: [hit.ref for hit in found] for way, found in hits.items()}


def serving(services: Services, workspace: str) -> Generation:
    with services.database.transaction(Role.READER, workspace) as tx:
        generation = generations.serving(tx, workspace)
    assert generation is not None
    return generation
