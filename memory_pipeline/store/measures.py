"""Counts and digests of what a workspace holds, for people and for data versions. Every statement only reads."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from memory_pipeline.store.database import Transaction


class SessionExtent(NamedTuple):
    """How much of one session is in the ledger: the harness's rows, and lines in quarantine."""

    session_id: str
    door: str
    entries: int
    last_seq: int
    newest: datetime | None
    quarantined: int


class QuarantinedLine(NamedTuple):
    """A refused line of a file: where it stands and why it was refused, without its content."""

    source: str
    line_number: int
    reason: str
    message: str
    quarantined_at: datetime


class RefusedRecordLine(NamedTuple):
    """A line of a registry file that an import did not take, without its content."""

    file_sha256: str
    line_number: int
    reason: str
    message: str
    quarantined_at: datetime
    quarantined_by: str


class StatusCount(NamedTuple):
    """Rows of one session with one type and one status. `digest` changes when the set of these rows does."""

    session_id: str
    type: str
    status: str
    rows: int
    digest: str


class CardCount(NamedTuple):
    """Cards of one kind and status."""

    kind: str
    status: str
    cards: int


class CardsExtent(NamedTuple):
    """All cards of a workspace: the newest change, and a digest over their ids and revisions."""

    newest: datetime | None
    digest: str


class CardLine(NamedTuple):
    """One card as a list shows it. `sources` counts the decisions behind it."""

    card_id: str
    kind: str
    status: str
    revision: int
    subject: str
    concepts: list[str]
    sources: int
    updated_at: datetime
    updated_by: str


class StoredVectors(NamedTuple):
    """Vectors of one model or analyser. `size`: dimensions of a dense one, mean number of terms of a sparse one."""

    source: str
    vectors: int
    size: float
    pooled: int
    newest: datetime


class IndexExtent(NamedTuple):
    """One generation seen from the registry, in cards.

    `current`: active, and seen on the server as they must be. `leftover`: not active, and last seen to have a point.
    `newest_change` of any card; `oldest_behind`: the oldest change that is not followed.
    """

    active: int
    current: int
    leftover: int
    digest: str
    newest_change: datetime | None
    oldest_behind: datetime | None


class TextsDigest(NamedTuple):
    """Digests over the texts behind the vectors of all active cards."""

    cards: int
    dense: str
    lexical: str


class PointLine(NamedTuple):
    """One point that the server was seen to hold."""

    card_id: str
    revision: int
    subject: str
    acknowledged_at: datetime


class WaitingLine(NamedTuple):
    """One card that the index has yet to follow, and what stopped the last attempt."""

    card_id: str
    state: str
    attempts: int
    last_error: str | None
    since: datetime


class Backlog(NamedTuple):
    """What the outbox of a workspace holds, in cards."""

    pending: int
    parked: int
    oldest: datetime | None


class LapsedSource(NamedTuple):
    """A decision that was promoted and no longer counts, and how many other sources of its card still do."""

    card_id: str
    subject: str
    session_id: str
    seq: int
    status: str
    others: int


def session_extents(tx: Transaction, workspace: str) -> list[SessionExtent]:
    """Every session of a workspace, as the harness; newest first."""
    rows = tx.execute(
        """
        WITH entries AS (
            SELECT session_id, count(*) AS entries, max(seq) AS last_seq, max(ts) AS newest
            FROM ledger_entries WHERE workspace = %(workspace)s AND origin = 'harness' GROUP BY session_id
        ), refused AS (
            SELECT session_id, count(*) AS lines
            FROM quarantined_lines WHERE workspace = %(workspace)s GROUP BY session_id
        )
        SELECT s.session_id, s.door, coalesce(e.entries, 0) AS entries, coalesce(e.last_seq, 0) AS last_seq, e.newest,
               coalesce(r.lines, 0) AS quarantined
        FROM sessions AS s LEFT JOIN entries AS e USING (session_id) LEFT JOIN refused AS r USING (session_id)
        WHERE s.workspace = %(workspace)s ORDER BY s.started_at DESC, s.session_id
        """,
        {"workspace": workspace},
    )
    return [SessionExtent(**row) for row in rows]


def quarantined_lines(tx: Transaction, workspace: str, *, limit: int) -> list[QuarantinedLine]:
    """Lines in quarantine, as the harness; the newest first, at most `limit`."""
    rows = tx.execute(
        """
        SELECT source, line_number, reason, message, quarantined_at FROM quarantined_lines
        WHERE workspace = %s ORDER BY quarantined_at DESC, source, line_number LIMIT %s
        """,
        (workspace, limit),
    )
    return [QuarantinedLine(**row) for row in rows]


def status_counts(tx: Transaction, workspace: str) -> list[StatusCount]:
    """What the rows of every session are worth today, counted by type and status."""
    rows = tx.execute(
        """
        SELECT s.session_id, e.type, d.status, count(*) AS rows,
               encode(sha256(convert_to(
                   string_agg(coalesce('seq:' || d.seq, 'pseq:' || d.pseq), ',' ORDER BY d.seq, d.pseq), 'UTF8'
               )), 'hex') AS digest
        FROM sessions AS s
        CROSS JOIN LATERAL session_status(s.workspace, s.session_id) AS d
        JOIN ledger_entries AS e ON e.workspace = s.workspace AND e.entry_id = d.entry_id
        WHERE s.workspace = %s
        GROUP BY s.session_id, e.type, d.status ORDER BY s.session_id, e.type, d.status
        """,
        (workspace,),
    )
    return [StatusCount(**row) for row in rows]


def card_counts(tx: Transaction, workspace: str) -> list[CardCount]:
    """Cards by kind and status."""
    rows = tx.execute(
        """
        SELECT kind, status, count(*) AS cards FROM cards
        WHERE workspace = %s GROUP BY kind, status ORDER BY kind, status
        """,
        (workspace,),
    )
    return [CardCount(**row) for row in rows]


def cards_extent(tx: Transaction, workspace: str) -> CardsExtent:
    """The newest change of any card, and the digest of all ids and revisions."""
    row = tx.execute(
        """
        SELECT max(updated_at) AS newest,
               encode(sha256(convert_to(
                   coalesce(string_agg(card_id || ':' || revision, ',' ORDER BY number), ''), 'UTF8'
               )), 'hex') AS digest
        FROM cards WHERE workspace = %s
        """,
        (workspace,),
    ).fetchone()
    assert row is not None  # noqa: S101 - an aggregate without groups gives one row
    return CardsExtent(**row)


def newest_cards(tx: Transaction, workspace: str, *, limit: int) -> list[CardLine]:
    """The cards that changed last."""
    rows = tx.execute(
        """
        SELECT c.card_id, c.kind, c.status, c.revision, c.subject, c.concepts, c.updated_at, c.updated_by,
               (SELECT count(*) FROM card_sources AS s
                WHERE s.workspace = c.workspace AND s.card_id = c.card_id) AS sources
        FROM cards AS c WHERE c.workspace = %s ORDER BY c.updated_at DESC, c.number DESC LIMIT %s
        """,
        (workspace, limit),
    )
    return [CardLine(**row) for row in rows]


def refused_records(tx: Transaction, workspace: str, *, limit: int) -> tuple[int, list[RefusedRecordLine]]:
    """How many lines of registry files are in quarantine, and the newest of them, as the indexer."""
    rows = tx.execute(
        """
        SELECT file_sha256, line_number, reason, message, quarantined_at, quarantined_by, count(*) OVER () AS lines
        FROM import_quarantine WHERE workspace = %s
        ORDER BY quarantined_at DESC, file_sha256, line_number LIMIT %s
        """,
        (workspace, limit),
    ).fetchall()
    total = rows[0]["lines"] if rows else 0
    return total, [RefusedRecordLine(**{name: row[name] for name in RefusedRecordLine._fields}) for row in rows]


def dense_vectors(tx: Transaction, workspace: str) -> list[StoredVectors]:
    """Stored dense vectors by model digest, as the indexer."""
    rows = tx.execute(
        """
        SELECT model_digest AS source, count(*) AS vectors, max(dimensions)::float8 AS size,
               count(*) FILTER (WHERE pooled) AS pooled, max(embedded_at) AS newest
        FROM dense_embeddings WHERE workspace = %s GROUP BY model_digest ORDER BY newest DESC
        """,
        (workspace,),
    )
    return [StoredVectors(**row) for row in rows]


def sparse_vectors(tx: Transaction, workspace: str) -> list[StoredVectors]:
    """Stored sparse vectors by analyser, as the indexer."""
    rows = tx.execute(
        """
        SELECT analyser AS source, count(*) AS vectors, avg(cardinality(indices))::float8 AS size, 0 AS pooled,
               max(encoded_at) AS newest
        FROM sparse_embeddings WHERE workspace = %s GROUP BY analyser ORDER BY newest DESC
        """,
        (workspace,),
    )
    return [StoredVectors(**row) for row in rows]


def index_extent(tx: Transaction, workspace: str, generation: int) -> IndexExtent:
    """How far one generation follows the cards, as the indexer."""
    row = tx.execute(
        """
        SELECT count(*) FILTER (WHERE c.status = 'active') AS active,
               count(*) FILTER (
                   WHERE c.status = 'active' AND p.revision = c.revision AND p.acknowledged_sha256 = p.expected_sha256
               ) AS current,
               count(*) FILTER (WHERE c.status <> 'active' AND p.acknowledged_sha256 IS NOT NULL) AS leftover,
               encode(sha256(convert_to(coalesce(
                   string_agg(c.card_id || ':' || p.acknowledged_sha256, ',' ORDER BY c.number), ''
               ), 'UTF8')), 'hex') AS digest,
               max(c.updated_at) AS newest_change,
               min(c.updated_at) FILTER (
                   WHERE c.status = 'active'
                   AND (p.revision = c.revision AND p.acknowledged_sha256 = p.expected_sha256) IS NOT TRUE
               ) AS oldest_behind
        FROM cards AS c
        LEFT JOIN projections AS p
            ON p.workspace = c.workspace AND p.card_id = c.card_id AND p.generation = %(generation)s
        WHERE c.workspace = %(workspace)s
        """,
        {"workspace": workspace, "generation": generation},
    ).fetchone()
    assert row is not None  # noqa: S101 - an aggregate without groups gives one row
    return IndexExtent(**row)


def texts_digest(tx: Transaction, workspace: str, generation: int, key: str) -> TextsDigest:
    """What the vectors of every active card were made of, as the indexer; `key` tells the generation's format.

    Only where the index follows the registry are these the cards' present texts.
    """
    row = tx.execute(
        """
        SELECT count(*) AS cards,
               encode(sha256(convert_to(
                   %(key)s || coalesce(string_agg(chr(10) || p.dense_sha256, '' ORDER BY c.number), ''), 'UTF8'
               )), 'hex') AS dense,
               encode(sha256(convert_to(
                   %(key)s || coalesce(string_agg(chr(10) || p.lexical_sha256, '' ORDER BY c.number), ''), 'UTF8'
               )), 'hex') AS lexical
        FROM cards AS c JOIN projections AS p USING (workspace, card_id)
        WHERE c.workspace = %(workspace)s AND c.status = 'active' AND p.generation = %(generation)s
        """,
        {"workspace": workspace, "generation": generation, "key": key},
    ).fetchone()
    assert row is not None  # noqa: S101 - an aggregate without groups gives one row
    return TextsDigest(**row)


def newest_points(tx: Transaction, workspace: str, generation: int, *, limit: int) -> list[PointLine]:
    """The points that were acknowledged last, as the indexer."""
    rows = tx.execute(
        """
        SELECT p.card_id, p.revision, c.subject, p.acknowledged_at
        FROM projections AS p JOIN cards AS c USING (workspace, card_id)
        WHERE p.workspace = %s AND p.generation = %s AND p.acknowledged_sha256 IS NOT NULL
        ORDER BY p.acknowledged_at DESC, c.number DESC LIMIT %s
        """,
        (workspace, generation, limit),
    )
    return [PointLine(**row) for row in rows]


def waiting_cards(tx: Transaction, workspace: str, *, limit: int) -> list[WaitingLine]:
    """Cards with unsettled rows in the outbox, as the indexer; parked ones first, then the oldest."""
    rows = tx.execute(
        """
        SELECT card_id, min(state) AS state, max(attempts) AS attempts, min(created_at) AS since,
               (array_agg(last_error ORDER BY propagation_id DESC) FILTER (WHERE last_error IS NOT NULL))[1]
                   AS last_error
        FROM propagations WHERE workspace = %s AND state <> 'done'
        GROUP BY card_id ORDER BY min(state), min(created_at), card_id LIMIT %s
        """,
        (workspace, limit),
    )
    return [WaitingLine(**row) for row in rows]


def backlog(tx: Transaction, workspace: str) -> Backlog:
    """What waits and what is parked, as the indexer."""
    row = tx.execute(
        """
        SELECT count(DISTINCT card_id) FILTER (WHERE state = 'pending') AS pending,
               count(DISTINCT card_id) FILTER (WHERE state = 'dead') AS parked,
               min(created_at) FILTER (WHERE state = 'pending') AS oldest
        FROM propagations WHERE workspace = %s AND state <> 'done'
        """,
        (workspace,),
    ).fetchone()
    assert row is not None  # noqa: S101 - an aggregate without groups gives one row
    return Backlog(**row)


def rewritten_cards(tx: Transaction, workspace: str) -> list[str]:
    """Cards that are not what their newest revision kept, as the indexer.

    A column added since is no difference, and times are left out: how they are written depends on the connection.
    """
    rows = tx.execute(
        """
        SELECT c.card_id
        FROM cards AS c
        LEFT JOIN card_revisions AS r
            ON r.workspace = c.workspace AND r.card_id = c.card_id AND r.revision = c.revision
        CROSS JOIN LATERAL (SELECT to_jsonb(c) - '{created_at,updated_at}'::text[] AS card) AS now
        WHERE c.workspace = %s AND now.card || (r.card - '{created_at,updated_at}'::text[]) IS DISTINCT FROM now.card
        ORDER BY c.number
        """,
        (workspace,),
    )
    return [row["card_id"] for row in rows]


def lapsed_sources(tx: Transaction, workspace: str) -> list[LapsedSource]:
    """Promoted decisions of active cards that are not effective any more, card by card, each session read once."""
    rows = tx.execute(
        """
        WITH active AS (
            SELECT c.card_id, c.number, c.subject, s.source_id, s.provenance, s.session_id, s.decision_seq
            FROM cards AS c JOIN card_sources AS s USING (workspace, card_id)
            WHERE c.workspace = %(workspace)s AND c.status = 'active'
        ), judged AS (
            SELECT p.session_id, d.seq, d.status
            FROM (SELECT DISTINCT session_id FROM active WHERE provenance = 'promotion') AS p
            CROSS JOIN LATERAL session_status(%(workspace)s, p.session_id) AS d
            WHERE d.origin = 'harness'
        ), told AS (
            SELECT a.*, coalesce(j.status, 'missing') AS status,
                   count(*) FILTER (WHERE a.provenance <> 'promotion' OR j.status = 'effective')
                       OVER (PARTITION BY a.card_id) AS others
            FROM active AS a LEFT JOIN judged AS j ON j.session_id = a.session_id AND j.seq = a.decision_seq
        )
        SELECT card_id, subject, session_id, decision_seq AS seq, status, others FROM told
        WHERE provenance = 'promotion' AND status <> 'effective' ORDER BY number, source_id
        """,
        {"workspace": workspace},
    )
    return [LapsedSource(**row) for row in rows]
