"""The figures: what each operation takes on a workspace, beside the least that its servers need for the same work."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from benchmarks.clock import Figure, percentile, timed
from benchmarks.planting import DATABASE, SCHEMA, contents, plant
from memory_pipeline.core.cards import MemoryRecord
from memory_pipeline.core.context import SearchFilters, search_context
from memory_pipeline.core.curation import CardFields
from memory_pipeline.core.dependencies import Dependency
from memory_pipeline.core.profile import DEFAULT_PROFILE, profile_named
from memory_pipeline.core.projection import project
from memory_pipeline.embedding.dense import DenseEmbedder, Outcome, Vector
from memory_pipeline.embedding.lexical import encoder_of
from memory_pipeline.index.filters import SearchFilter
from memory_pipeline.index.points import IndexPoint
from memory_pipeline.index.queries import HybridQuery
from memory_pipeline.operations.consistency import check_consistency
from memory_pipeline.operations.curate import edit_card
from memory_pipeline.operations.embed import PAGE, active_projections, dense_vectors, sparse_vectors
from memory_pipeline.operations.index import index
from memory_pipeline.operations.propagate import drain
from memory_pipeline.operations.rebuild import rebuild
from memory_pipeline.operations.recall import SearchRequest, recall
from memory_pipeline.operations.scratch import scratch_workspace
from memory_pipeline.operations.services import Services
from memory_pipeline.store import cards, generations
from memory_pipeline.store.database import Role
from memory_pipeline.store.generations import Generation

EDITS = 20
QUERIES = 200
SAMPLE = 10_000
JOBS = 60
WARM_UP = 20
PLACE = Dependency(database=DATABASE, schema_=SCHEMA)

Say = Callable[[str], None]


def measure(services: Services, size: int, say: Say) -> Iterator[Figure]:
    """Every figure at one size, in the order in which a workspace lives."""
    with (
        scratch_workspace(services, title="Benchmark", language="it", database=DATABASE) as made,
        counting(services) as counter,
    ):
        workspace = made.slug
        say(f"planting {size} cards in {workspace}")
        plant(services, workspace, size)
        yield from _indexed(services, workspace, size, counter)
        yield from _unchanged(services, workspace, size, counter)
        yield from _edited(services, workspace, size, counter)
        yield from _searched(services, workspace, size)
        yield from _launched(services, workspace, size)
        yield from _scanned(services, workspace, size)
        yield from _rebuilt(services, workspace, size, counter)


# --- the first index, and the one after it ---------------------------------------------------------------------------


def _indexed(services: Services, workspace: str, size: int, counter: _Counter) -> Iterator[Figure]:
    """Half of the embedder's own time is taken before, half after, so that a busy machine counts on both sides.

    Beyond `SAMPLE` texts its rate is known.
    """
    texts = [profile_named(DEFAULT_PROFILE).dense_text(content) for content in contents(min(size, SAMPLE))]
    half = len(texts) // 2
    embedder = counter.embedder
    model = embedder.describe(services.settings.embedding_model)
    _, before = timed(lambda: _embed_alone(embedder, model.name, texts[:half]))
    asked = counter.texts
    report, step = timed(lambda: index(services, workspace))
    embedded = counter.texts - asked
    _, after = timed(lambda: _embed_alone(embedder, model.name, texts[half:]))
    bare = (before.seconds + after.seconds) * size / len(texts)
    counter.first_index = step.seconds
    yield Figure(
        cards=size,
        name="first index",
        unit="s",
        value=step.seconds,
        bare=bare,
        ratio=bare / step.seconds,
        goal=">= 0.85 of the embedder alone on the same texts",
        reached=bare / step.seconds >= 0.85,
        memory=step.memory,
        notes={
            "cards_per_second": size / step.seconds,
            "waiting_for_the_embedder": counter.seconds / step.seconds,
            "upserted": report.drain.upserted,
            "embedded": embedded,
        },
    )


def _embed_alone(embedder: DenseEmbedder, model: str, texts: Sequence[str]) -> None:
    for start in range(0, len(texts), PAGE):
        embedder.embed(model, texts[start : start + PAGE], dimensions=None)


def _unchanged(services: Services, workspace: str, size: int, counter: _Counter) -> Iterator[Figure]:
    asked = counter.texts
    report, step = timed(lambda: index(services, workspace))
    calls, written = counter.texts - asked, report.drain.upserted + report.drain.payload_only
    share = step.seconds / counter.first_index
    yield Figure(
        cards=size,
        name="second index, nothing changed",
        unit="s",
        value=step.seconds,
        bare=counter.first_index,
        ratio=share,
        goal="< 0.02 of the first, nothing embedded, nothing written",
        reached=share < 0.02 and calls == 0 and written == 0,
        memory=step.memory,
        notes={"texts_embedded": calls, "points_written": written},
    )


# --- one edit --------------------------------------------------------------------------------------------------------


def _edited(services: Services, workspace: str, size: int, counter: _Counter) -> Iterator[Figure]:
    """The drain after one edit, and in turn the bare work: one text embedded, one point written and read back."""
    generation = _serving(services, workspace)
    spent, bare, asked, written = [], [], counter.texts, 0
    for turn in range(EDITS):
        card = cards_of(services, workspace, 1 + turn * (size // EDITS))
        edit_card(
            services, workspace, card.id, card.revision, CardFields(detail=f"{card.detail} (riletto {uuid.uuid4()})")
        )
        report, step = timed(lambda: drain(services, workspace))
        written += report.upserted
        spent.append(step.seconds)
        bare.append(_bare_edit(services, counter.embedder, generation, workspace, card.id))
    value, least, texts = statistics.median(spent), statistics.median(bare), counter.texts - asked
    yield Figure(
        cards=size,
        name="one card edited",
        unit="ms",
        value=1000 * value,
        bare=1000 * least,
        ratio=value / least,
        goal="one embedding, one upsert; time within 1.5 of a workspace a tenth the size",
        reached=None if texts == written == EDITS else False,  # the time is judged once both sizes are measured
        notes={"edits": EDITS, "texts_embedded": texts, "upserted": written},
    )


def cards_of(services: Services, workspace: str, number: int) -> MemoryRecord:
    """One card as it is now."""
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        ((_, card),) = cards.page(tx, workspace, after=number - 1, limit=1)
    return card


def _bare_edit(
    services: Services, embedder: DenseEmbedder, generation: Generation, workspace: str, card_id: str
) -> float:
    """The same point once more, which changes nothing: its text is embedded, it is written and read back."""
    card = cards_of(services, workspace, int(card_id.removeprefix("mem-")))
    (point,) = _points(services, workspace, generation, [card])
    start = time.perf_counter()
    embedder.embed(generation.format.model, [point.projection.dense_text], dimensions=None)
    services.index.upsert(generation.collection, [point])
    services.index.read(generation.collection, [point.projection.point_id])
    return time.perf_counter() - start


# --- search ----------------------------------------------------------------------------------------------------------


def _searched(services: Services, workspace: str, size: int) -> Iterator[Figure]:
    """Recall with the question's vector at hand, and in turn the bare query: same filter, same vectors."""
    generation = _serving(services, workspace)
    profile = profile_named(generation.format.profile)
    encoder = encoder_of(generation.format.language, profile)
    context = search_context(PLACE, SearchFilters(), default_schema=None)
    spent, bare, answers = [], [], []
    with _vectors_at_hand(services, generation) as known:
        for question in _questions():
            query = HybridQuery(
                dense=known.embed_query(generation.format.model, profile.dense_query(question), dimensions=None),
                lexical=encoder.query(profile.lexical_query(question)),
                filter=SearchFilter.of(context, without=()),
                limit=10,
                prefetch=profile.prefetch,
                lexical_weight=profile.lexical_weight,
                lexical_half=profile.lexical_half,
            )
            bare.append(_seconds(partial(services.index.search, generation.collection, query)))
            start = time.perf_counter()
            answers.append(recall(services, _request(workspace, question)))
            spent.append(time.perf_counter() - start)
    value, least = percentile(spent[WARM_UP:], 0.95), percentile(bare[WARM_UP:], 0.95)
    stages = {
        f"{stage}_p50": statistics.median(getattr(answer.timings, stage) for answer in answers[WARM_UP:])
        for stage in ("embed", "index", "registry", "links")
    }
    yield Figure(
        cards=size,
        name="search, warm, p95",
        unit="ms",
        value=1000 * value,
        bare=1000 * least,
        ratio=value / least,
        goal="<= 3 of the bare query with the same filter",
        reached=value / least <= 3,
        notes={
            "p50": 1000 * percentile(spent[WARM_UP:], 0.5),
            "bare_p50": 1000 * percentile(bare[WARM_UP:], 0.5),
            **stages,
        },
    )


def _launched(services: Services, workspace: str, size: int) -> Iterator[Figure]:
    """The same search as a job in a warm process, and in turn without it: what the job adds."""
    import dagster as dg  # noqa: PLC0415 - nothing else here needs it, and it takes seconds

    from memory_pipeline.defs.jobs import search_job  # noqa: PLC0415

    quiet = {"console": {"config": {"log_level": "CRITICAL"}}}
    added = []
    with dg.DagsterInstance.ephemeral() as instance, _vectors_at_hand(services, _serving(services, workspace)):
        for question in _questions()[: WARM_UP + JOBS]:
            asked = {"workspace": workspace, "question": question, "database": DATABASE, "schema": SCHEMA}
            run_config = {"loggers": quiet, "ops": {"search": {"config": asked}}}
            start = time.perf_counter()
            search_job.execute_in_process(
                run_config=run_config, instance=instance, resources={"services": services}
            ).output_for_node("search")
            job = time.perf_counter() - start
            added.append(job - _seconds(partial(recall, services, _request(workspace, question))))
    value = statistics.median(added[WARM_UP:])
    yield Figure(
        cards=size,
        name="search as a job, added",
        unit="ms",
        value=1000 * value,
        goal="<= 35 ms",
        reached=1000 * value <= 35,
        notes={"p95": 1000 * percentile(added[WARM_UP:], 0.95)},
    )


def _questions() -> list[str]:
    """Questions that no card was made for; the first ones warm things up."""
    return [content.question_context for content in contents(WARM_UP + QUERIES, seed=1)]


def _request(workspace: str, question: str) -> SearchRequest:
    return SearchRequest(workspace=workspace, question=question, place=PLACE)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class _Known:
    """An embedder whose answers to the questions are known beforehand: what is measured is the rest."""

    def __init__(self, real: DenseEmbedder, generation: Generation) -> None:
        profile = profile_named(generation.format.profile)
        self._vectors = {
            text: real.embed_query(generation.format.model, text, dimensions=None)
            for text in map(profile.dense_query, _questions())
        }

    def embed_query(self, model: str, text: str, *, dimensions: int | None) -> Vector:
        return self._vectors[text]


@contextmanager
def _vectors_at_hand(services: Services, generation: Generation) -> Iterator[_Known]:
    real = services.embedder
    known = _Known(real, generation)
    services.__dict__["embedder"] = known
    try:
        yield known
    finally:
        services.__dict__["embedder"] = real


# --- drift and rebuild -----------------------------------------------------------------------------------------------


def _scanned(services: Services, workspace: str, size: int) -> Iterator[Figure]:
    """The comparison of both stores, beside scrolling through the points and through the registry's hashes."""
    _, bare = timed(lambda: _scroll_both(services, workspace))
    report, step = timed(lambda: check_consistency(services, workspace))
    per_100k = step.seconds * 100_000 / size
    yield Figure(
        cards=size,
        name="drift scan",
        unit="s",
        value=step.seconds,
        bare=bare.seconds,
        ratio=step.seconds / bare.seconds,
        goal="< 10 s per 100,000 cards, memory of a page",
        reached=per_100k < 10,
        memory=step.memory,
        notes={"per_100000": per_100k, "found": report.total, "pending": report.pending},
    )


def _scroll_both(services: Services, workspace: str) -> int:
    generation = _serving(services, workspace)
    seen = sum(len(page) for page in services.index.scroll(generation.collection, 1000))
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        rows = tx.execute(
            "SELECT card_id, expected_sha256 FROM projections WHERE workspace = %s AND generation = %s",
            (workspace, generation.number),
        )
        return seen + sum(1 for _ in rows)


def _rebuilt(services: Services, workspace: str, size: int, counter: _Counter) -> Iterator[Figure]:
    """A rebuild, beside writing the same points, ready in memory, into an empty collection."""
    bare = _write_all(services, workspace)
    asked = counter.texts
    _, step = timed(lambda: rebuild(services, workspace))
    yield Figure(
        cards=size,
        name="rebuild",
        unit="s",
        value=step.seconds,
        bare=bare,
        ratio=step.seconds / bare,
        goal="nothing embedded",
        reached=counter.texts == asked,
        memory=step.memory,
        notes={"texts_embedded": counter.texts - asked},
    )


def _write_all(services: Services, workspace: str) -> float:
    """Seconds that the server takes for every point of a workspace, page by page; making the points is not counted."""
    generation = _serving(services, workspace)
    name = f"bench-{uuid.uuid4().hex[:12]}"
    services.index.create(name, dimensions=generation.format.dimensions)
    spent = 0.0
    try:
        for page in active_projections(services, workspace, generation.format):
            with services.database.transaction(Role.INDEXER, workspace) as tx:
                current = cards.get_many(tx, workspace, [item.card_id for item in page])
            points = _points(services, workspace, generation, list(current.values()))
            start = time.perf_counter()
            services.index.upsert(name, points)
            spent += time.perf_counter() - start
    finally:
        services.index.drop(name)
    return spent


# --- what they share -------------------------------------------------------------------------------------------------


@dataclass
class _Counter:
    """An embedder that counts the texts that it was asked for, and the seconds that they took."""

    embedder: DenseEmbedder
    texts: int = 0
    seconds: float = 0.0
    first_index: float = field(default=1.0)

    def embed(self, model: str, texts: Sequence[str], *, dimensions: int | None) -> list[Outcome]:
        start = time.perf_counter()
        outcomes = self.embedder.embed(model, texts, dimensions=dimensions)
        self.seconds += time.perf_counter() - start
        self.texts += len(texts)
        return outcomes

    def __getattr__(self, name: str) -> object:
        return getattr(self.embedder, name)


@contextmanager
def counting(services: Services) -> Iterator[_Counter]:
    """Count what the embedder is asked for."""
    real = services.embedder
    counter = _Counter(real)
    services.__dict__["embedder"] = counter
    try:
        yield counter
    finally:
        services.__dict__["embedder"] = real


def _serving(services: Services, workspace: str) -> Generation:
    with services.database.transaction(Role.INDEXER, workspace) as tx:
        generation = generations.serving(tx, workspace)
    assert generation is not None  # noqa: S101 - it was indexed before
    return generation


def _points(
    services: Services, workspace: str, generation: Generation, records: Sequence[MemoryRecord]
) -> list[IndexPoint]:
    """Points as a drain would write them, from what is stored."""
    wanted = [project(card, generation.format) for card in records]
    dense, _, _ = dense_vectors(services, workspace, generation.format, wanted)
    sparse, _ = sparse_vectors(services, workspace, generation.format, wanted)
    return [IndexPoint(item, dense[item.dense_sha256].vector, sparse[item.lexical_sha256]) for item in wanted]
