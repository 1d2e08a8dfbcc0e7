"""Generations of a workspace's index, the collections that are ours, and what each point must hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from memory_pipeline.core.projection import IndexFormat, Projection
from memory_pipeline.store.database import Transaction


class Generation(NamedTuple):
    """One index that was built: where it lies and how it was made."""

    number: int
    collection: str
    alias: str
    format: IndexFormat
    serving: bool = False
    is_rebuild: bool = False


class ProjectionState(NamedTuple):
    """What a point must hold, and what the server was seen to hold. None: no point."""

    revision: int
    expected_sha256: str | None
    acknowledged_sha256: str | None
    dense_sha256: str | None
    lexical_sha256: str | None


def serving(tx: Transaction, workspace: str) -> Generation | None:
    """The generation that searches use; none before the first index."""
    return _fetch(tx, workspace, "g.state = 'serving'")


def building(tx: Transaction, workspace: str) -> Generation | None:
    """The newest generation that searches wait for; none where none is. A rebuild is not: another one serves."""
    return _fetch(tx, workspace, "g.state = 'building' AND NOT g.is_rebuild ORDER BY g.generation DESC LIMIT 1")


def rebuilding(tx: Transaction, workspace: str) -> Generation | None:
    """The generation that a rebuild fills beside the one that serves; none where none is."""
    return _fetch(tx, workspace, "g.state = 'building' AND g.is_rebuild")


def newest_number(tx: Transaction, workspace: str) -> int:
    """The highest generation number ever used; 0 for none."""
    row = tx.execute(
        "SELECT coalesce(max(generation), 0) AS newest FROM generations WHERE workspace = %s", (workspace,)
    ).fetchone()
    return int(row["newest"]) if row else 0


def lock_build(tx: Transaction, workspace: str) -> None:
    """Hold the right to make a generation until the transaction ends."""
    tx.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"build:{workspace}",))


def insert(tx: Transaction, workspace: str, generation: Generation, *, state: str) -> None:
    """Record a generation and its collection as ours."""
    index = generation.format
    tx.execute(
        """
        INSERT INTO collections (workspace, collection, alias, model, dimensions) VALUES (%s, %s, %s, %s, %s)
        ON CONFLICT (collection) DO UPDATE SET dropped_at = NULL, drop_after = NULL
        """,
        (workspace, generation.collection, generation.alias, index.model, index.dimensions),
    )
    tx.execute(
        """
        INSERT INTO generations (workspace, generation, collection, state, format, profile, profile_version, model,
                                 model_digest, dimensions, analyser, language, is_rebuild, serving_since)
        VALUES (%(workspace)s, %(number)s, %(collection)s, %(state)s, %(format)s, %(profile)s, %(profile_version)s,
                %(model)s, %(model_digest)s, %(dimensions)s, %(analyser)s, %(language)s,
                %(is_rebuild)s, CASE WHEN %(state)s = 'serving' THEN now() END)
        """,
        {
            "workspace": workspace,
            "number": generation.number,
            "collection": generation.collection,
            "state": state,
            "is_rebuild": generation.is_rebuild,
            **index.model_dump(),
        },
    )


def expect(tx: Transaction, workspace: str, generation: int, projections: Collection[Projection]) -> None:
    """Record what points must hold from now on: before the server is asked, so that an older point is not current."""
    tx.execute(
        """
        INSERT INTO projections (workspace, generation, card_id, revision, expected_sha256)
        SELECT %s, %s, wanted.* FROM unnest(%s::text[], %s::bigint[], %s::text[]) AS wanted
        ON CONFLICT (workspace, generation, card_id) DO UPDATE
        SET revision = excluded.revision, expected_sha256 = excluded.expected_sha256
        WHERE projections.revision <= excluded.revision
        """,
        (
            workspace,
            generation,
            [projection.card_id for projection in projections],
            [projection.revision for projection in projections],
            [projection.sha256 for projection in projections],
        ),
    )


def expect_none(tx: Transaction, workspace: str, generation: int, revisions: Mapping[str, int]) -> None:
    """Record that these cards, at these revisions, must have no point."""
    tx.execute(
        """
        INSERT INTO projections (workspace, generation, card_id, revision)
        SELECT %s, %s, unwanted.* FROM unnest(%s::text[], %s::bigint[]) AS unwanted
        ON CONFLICT (workspace, generation, card_id) DO UPDATE
        SET revision = excluded.revision, expected_sha256 = NULL
        WHERE projections.revision <= excluded.revision
        """,
        (workspace, generation, list(revisions), list(revisions.values())),
    )


def acknowledge(tx: Transaction, workspace: str, generation: int, seen: Collection[Projection]) -> None:
    """Record that the server was seen to hold these projections."""
    tx.execute(
        """
        UPDATE projections AS p
        SET acknowledged_sha256 = seen.sha256, dense_sha256 = seen.dense, lexical_sha256 = seen.lexical,
            acknowledged_at = now()
        FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) AS seen (card_id, sha256, dense, lexical)
        WHERE p.workspace = %s AND p.generation = %s AND p.card_id = seen.card_id
        """,
        (
            [item.card_id for item in seen],
            [item.sha256 for item in seen],
            [item.dense_sha256 for item in seen],
            [item.lexical_sha256 for item in seen],
            workspace,
            generation,
        ),
    )


def acknowledge_absence(tx: Transaction, workspace: str, generation: int, ids: Iterable[str]) -> None:
    """Record that the server was seen to hold no point for these cards."""
    tx.execute(
        """
        UPDATE projections
        SET acknowledged_sha256 = NULL, dense_sha256 = NULL, lexical_sha256 = NULL, acknowledged_at = now()
        WHERE workspace = %s AND generation = %s AND card_id = ANY (%s)
        """,
        (workspace, generation, list(ids)),
    )


def forget_points(tx: Transaction, workspace: str, generation: int) -> None:
    """The collection is empty again: nothing is acknowledged, and searches wait until it is filled."""
    tx.execute(
        """
        UPDATE projections SET acknowledged_sha256 = NULL, dense_sha256 = NULL, lexical_sha256 = NULL
        WHERE workspace = %s AND generation = %s
        """,
        (workspace, generation),
    )
    tx.execute(
        """
        UPDATE generations SET state = 'building', serving_since = NULL
        WHERE workspace = %s AND generation = %s AND state = 'serving'
        """,
        (workspace, generation),
    )


def forget_acknowledged(tx: Transaction, workspace: str, generation: int, ids: Sequence[str]) -> None:
    """What was seen of these cards' points is not there any more: they have to be written again."""
    tx.execute(
        """
        UPDATE projections SET acknowledged_sha256 = NULL, dense_sha256 = NULL, lexical_sha256 = NULL
        WHERE workspace = %s AND generation = %s AND card_id = ANY (%s)
        """,
        (workspace, generation, list(ids)),
    )


def start_serving(tx: Transaction, workspace: str, generation: int, *, keep: float) -> None:
    """Searches use this generation once the transaction commits.

    Args:
        keep: seconds for which other collections stay, for searches that read the old row just before.
    """
    tx.execute(
        """
        UPDATE generations SET state = 'replaced', replaced_at = now()
        WHERE workspace = %(workspace)s AND generation <> %(generation)s
            AND (state = 'serving' OR state = 'building' AND NOT is_rebuild)
        """,
        {"workspace": workspace, "generation": generation},
    )
    tx.execute(
        """
        UPDATE generations SET state = 'serving', serving_since = coalesce(serving_since, now()), is_rebuild = false
        WHERE workspace = %s AND generation = %s
        """,
        (workspace, generation),
    )
    tx.execute(
        """
        UPDATE collections AS c SET drop_after = clock_timestamp() + make_interval(secs => %(keep)s)
        WHERE c.workspace = %(workspace)s AND c.drop_after IS NULL AND c.dropped_at IS NULL AND NOT EXISTS (
            SELECT FROM generations AS g
            WHERE g.workspace = c.workspace AND g.collection = c.collection AND g.state IN ('serving', 'building')
        )
        """,
        {"workspace": workspace, "keep": keep},
    )


def give_up(tx: Transaction, workspace: str, generation: int, failure: str) -> None:
    """Record that a rebuild failed. Nobody searches its collection: it may be dropped at once."""
    tx.execute(
        "UPDATE generations SET state = 'failed', failure = left(%s, 2000) WHERE workspace = %s AND generation = %s",
        (failure, workspace, generation),
    )
    tx.execute(
        """
        UPDATE collections AS c SET drop_after = clock_timestamp()
        FROM generations AS g
        WHERE g.workspace = %s AND g.generation = %s AND c.workspace = g.workspace AND c.collection = g.collection
        """,
        (workspace, generation),
    )


def behind(tx: Transaction, workspace: str, generation: int, *, after: int, limit: int) -> list[tuple[int, str]]:
    """Numbers and ids of cards that a generation does not follow yet, by number, above `after`, at most `limit`.

    By comparing revisions, and not by the outbox: its rows get their numbers before their transactions commit, so that
    a row that is seen late may stand before one that was seen early.
    """
    rows = tx.execute(
        """
        SELECT c.number, c.card_id
        FROM cards AS c
        LEFT JOIN projections AS p
            ON p.workspace = c.workspace AND p.card_id = c.card_id AND p.generation = %(generation)s
        WHERE c.workspace = %(workspace)s AND c.number > %(after)s AND CASE
            WHEN c.status = 'active'
            THEN p.revision IS DISTINCT FROM c.revision OR p.acknowledged_sha256 IS NULL
                OR p.acknowledged_sha256 IS DISTINCT FROM p.expected_sha256
            ELSE p.expected_sha256 IS NOT NULL OR p.acknowledged_sha256 IS NOT NULL
        END
        ORDER BY c.number LIMIT %(limit)s
        """,
        {"workspace": workspace, "generation": generation, "after": after, "limit": limit},
    )
    return [(row["number"], row["card_id"]) for row in rows]


def acknowledged_count(tx: Transaction, workspace: str, generation: int) -> int:
    """How many points the server was seen to hold."""
    row = tx.execute(
        """
        SELECT count(*) AS points FROM projections
        WHERE workspace = %s AND generation = %s AND acknowledged_sha256 IS NOT NULL
        """,
        (workspace, generation),
    ).fetchone()
    return int(row["points"]) if row else 0


def acknowledged_page(
    tx: Transaction, workspace: str, generation: int, *, after: str, limit: int
) -> dict[str, ProjectionState]:
    """States of the points that the server was seen to hold, by card id, beyond `after`, at most `limit`."""
    rows = tx.execute(
        """
        SELECT card_id, revision, expected_sha256, acknowledged_sha256, dense_sha256, lexical_sha256
        FROM projections
        WHERE workspace = %s AND generation = %s AND card_id > %s AND acknowledged_sha256 IS NOT NULL
        ORDER BY card_id LIMIT %s
        """,
        (workspace, generation, after, limit),
    )
    return {row.pop("card_id"): ProjectionState(**row) for row in rows}


def states(tx: Transaction, workspace: str, generation: int, ids: Sequence[str]) -> dict[str, ProjectionState]:
    """Expected and acknowledged hashes of these cards under one generation."""
    rows = tx.execute(
        """
        SELECT card_id, revision, expected_sha256, acknowledged_sha256, dense_sha256, lexical_sha256
        FROM projections
        WHERE workspace = %s AND generation = %s AND card_id = ANY (%s)
        """,
        (workspace, generation, list(ids)),
    )
    return {row.pop("card_id"): ProjectionState(**row) for row in rows}


def points_of_inactive_cards(tx: Transaction, workspace: str, generation: int, *, limit: int) -> dict[str, int]:
    """Cards that must have no point and were last seen to have one, with their revisions."""
    rows = tx.execute(
        """
        SELECT c.card_id, c.revision
        FROM projections AS p JOIN cards AS c USING (workspace, card_id)
        WHERE p.workspace = %s AND p.generation = %s AND p.acknowledged_sha256 IS NOT NULL AND c.status <> 'active'
        ORDER BY c.number LIMIT %s
        """,
        (workspace, generation, limit),
    )
    return {row["card_id"]: row["revision"] for row in rows}


def _fetch(tx: Transaction, workspace: str, condition: str) -> Generation | None:
    row: dict[str, Any] | None = tx.execute(
        f"""
        SELECT g.generation, g.collection, c.alias, g.format, g.profile, g.profile_version, g.model, g.model_digest,
               g.dimensions, g.analyser, g.language, g.state = 'serving' AS serving, g.is_rebuild
        FROM generations AS g JOIN collections AS c USING (workspace, collection)
        WHERE g.workspace = %s AND {condition}
        """,  # noqa: S608 - the condition is this module's own text
        (workspace,),
    ).fetchone()
    if row is None:
        return None
    number, collection, alias = row.pop("generation"), row.pop("collection"), row.pop("alias")
    serves, is_rebuild = row.pop("serving"), row.pop("is_rebuild")
    return Generation(number, collection, alias, IndexFormat(**row), serves, is_rebuild)
