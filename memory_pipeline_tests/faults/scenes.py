"""A workspace with a change of every kind waiting, and what must hold once it has been brought up to date."""

from __future__ import annotations

from dataclasses import dataclass

from memory_pipeline.core.cards import CardKind
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.drift import Remedy
from memory_pipeline.core.profile import profile_named
from memory_pipeline.core.projection import Projection, is_projected, project
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.index.queries import HybridQuery
from memory_pipeline.operations.consistency import scan_page
from memory_pipeline.operations.curate import add_card, delete_card, edit_card, set_kind
from memory_pipeline.operations.embed import dense_vectors, sparse_vectors
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.rebuild import rebuild
from memory_pipeline.operations.reconcile import reconcile
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations, monitor, propagations, upkeep
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation
from memory_pipeline_tests.flows import ABLATION, MORTALITY, READMISSION, ask, found, promote

DIALYSIS = {"subject": "dialisi", "detail": "seduta di emodialisi ambulatoriale conclusa, contata per paziente"}
DELAY = {"subject": "attesa", "detail": "giorni tra la prenotazione e il ricovero programmato"}
TRIAGE = {"subject": "triage", "detail": "codice di colore assegnato all'arrivo in pronto soccorso"}
OLD_TEXT = READMISSION["detail"]
NEW_TEXT = "ricovero urgente del medesimo paziente entro tre mesi"


@dataclass(frozen=True)
class Expected:
    """The memories that there are, each with the text by which it is found first. No other card is found at all."""

    memories: dict[str, str]


def fresh(services: Services, workspace: str) -> Expected:
    """Two cards, and no index yet."""
    promote(services, workspace, [ABLATION, READMISSION])
    return Expected(memories={"mem-0001": ABLATION["detail"], "mem-0002": OLD_TEXT})


def changed(services: Services, workspace: str) -> Expected:
    """After a first index, everything waits: a card is new, one has another text, one another scope, one is deleted,
    one is of another kind. The point of one that was deleted before has come back, as from a request that hung.
    """
    promote(services, workspace, [ABLATION, READMISSION, MORTALITY, DIALYSIS, DELAY, TRIAGE])
    assert drain(services, workspace).settled
    (removed,) = points(services, workspace, ["mem-0006"])
    delete_card(services, workspace, "mem-0006", 1)
    assert drain(services, workspace).removed == 1
    services.index.upsert(serving(services, workspace).collection, [removed])

    edit_card(services, workspace, "mem-0002", 1, CardFields(detail=NEW_TEXT))
    edit_card(services, workspace, "mem-0003", 1, CardFields(scope=("budget",)))
    delete_card(services, workspace, "mem-0004", 1)
    set_kind(services, workspace, "mem-0005", 1, CardKind.EXEMPLAR)
    new = add_card(services, workspace, CardFields(subject="degenza", detail="giorni tra ricovero e dimissione")).card
    return Expected(
        memories={
            "mem-0001": ABLATION["detail"],
            "mem-0002": NEW_TEXT,
            "mem-0003": MORTALITY["detail"],
            new.id: new.detail,
        },
    )


def replaced(services: Services, workspace: str) -> Expected:
    """As `changed`, all done, with a rebuilt index; the time of the old collection has come."""
    expected = changed(services, workspace)
    rebuild(services, workspace)
    pass_time(services, workspace)
    return expected


def pass_time(services: Services, workspace: str) -> None:
    """All that was left to be done later is due."""
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        tx.execute("UPDATE collections SET drop_after = now() - interval '1 s' WHERE drop_after IS NOT NULL")
        tx.execute("UPDATE tombstones SET verify_until = now() - interval '1 s'")


def heal(services: Services, workspace: str) -> None:
    """What the sensors do, and only where they would: drain while the workspace is told to be due, mend what differs.

    The pauses between attempts are taken to be over.
    """
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        propagations.make_due(tx, workspace)
    for _ in range(5):
        with services.database.transaction(Role.READER, None) as tx:
            due = {each.workspace for each in (*monitor.due(tx), *upkeep.due(tx))}
        if workspace in due:
            drain(services, workspace)
        elif _differs(services, workspace):
            reconcile(services, workspace)
        else:
            return
    raise AssertionError(f"{workspace} is still told to be due, or differs")


def _differs(services: Services, workspace: str) -> bool:
    """Whether a round of the comparison finds what a program mends."""
    cursor: str | None = None
    while True:
        page = scan_page(services, workspace, cursor)
        if any(finding.remedy is not Remedy.PROPOSE for finding in page.findings):
            return True
        if (cursor := page.next_cursor) is None:
            return False


def require_equal(services: Services, workspace: str) -> None:
    """Nothing is lost, doubled or stale: the index holds the registry's cards, each once, as they are now."""
    generation = serving(services, workspace)
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        assert propagations.count(tx, workspace) == (0, 0)
        current = cards.get_many(tx, workspace, cards.all_ids(tx, workspace))
    wanted = [project(card, generation.format) for card in current.values() if is_projected(card)]
    held = [state for page in services.index.scroll(generation.collection, 100) for state in page]
    assert sorted((point.ref, point.revision, point.projection_sha256) for point in held) == sorted(
        (item.card_id, item.revision, item.sha256) for item in wanted
    )
    assert {point.point_id for point in held} == {item.point_id for item in wanted}
    for item in wanted:
        _require_own_vectors(services, generation, item)


def require_one_collection(services: Services, workspace: str) -> None:
    """Once its time has come, nothing of an older or unfinished index is left on the server."""
    pass_time(services, workspace)
    assert drain(services, workspace).settled
    generation = serving(services, workspace)
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        ours = [row["collection"] for row in tx.execute("SELECT collection FROM collections")]
    assert [name for name in ours if services.index.shape(name) is not None] == [generation.collection]
    assert services.index.alias_target(generation.alias) == generation.collection


def require_recalled(services: Services, workspace: str, expected: Expected) -> None:
    """Each memory is found by its own words, in its current text; what is gone is not found, though all else is."""
    for card_id, text in expected.memories.items():
        answer = ask(services, workspace, text, limit=100)
        assert answer.proposals[0].card.id == card_id
        assert answer.proposals[0].card.detail == text
        assert set(found(answer)) == set(expected.memories)


def require_never_stale(services: Services, workspace: str) -> None:
    """Whatever still waits: of all that can be found, each is the registry's current row, and none comes twice."""
    answer = ask(services, workspace, OLD_TEXT, limit=100)
    assert answer.proposals
    assert len(found(answer)) == len(set(found(answer)))
    with services.database.transaction(Role.READER, workspace) as tx:
        current = cards.get_many(tx, workspace, found(answer))
    for proposal in answer.proposals:
        card = current[proposal.card.id]
        assert (proposal.card, card.kind, is_projected(card)) == (card, CardKind.MEMORY, True)


def serving(services: Services, workspace: str) -> Generation:
    """The generation that searches use."""
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        generation = generations.serving(tx, workspace)
    assert generation is not None
    return generation


def points(services: Services, workspace: str, ids: list[str]) -> list[IndexPoint]:
    """The points of cards as they are now, as a drain would write them."""
    index = serving(services, workspace).format
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        wanted = [project(card, index) for card in cards.get_many(tx, workspace, ids).values()]
    dense, _, _ = dense_vectors(services, workspace, index, wanted)
    sparse, _ = sparse_vectors(services, workspace, index, wanted)
    return [IndexPoint(item, dense[item.dense_sha256].vector, sparse[item.lexical_sha256]) for item in wanted]


def _require_own_vectors(services: Services, generation: Generation, item: Projection) -> None:
    """A payload can be right over an older vector: a point is as near to its own text as can be, in both branches."""
    index, profile = generation.format, profile_named(generation.format.profile)
    dense = services.embedder.embed_query(index.model, item.dense_text, dimensions=index.dimensions)
    query = HybridQuery(
        dense=dense,
        lexical=encoder_of(index.language, profile).query(item.lexical_text),
        filter=SearchFilter(),
        limit=1,
        prefetch=100,
        lexical_weight=profile.lexical_weight,
        lexical_half=profile.lexical_half,
    )
    scores = services.index.branch_scores(generation.collection, [item.point_id], query)[item.point_id]
    assert scores.dense > 0.999, item.card_id
    assert scores.bm25 > 0, item.card_id
