-- The control room: what changed where, for whoever shows it, and what sensors ask about all workspaces.

-- One row per transaction, workspace and part of the registry that the transaction wrote. The transaction's number is
-- the cursor: those below the oldest one that still runs are all over, so nothing that commits late is ever passed by,
-- as it would be with a sequence or a time.
CREATE TABLE changes (
    workspace   text NOT NULL REFERENCES workspaces,
    part        text NOT NULL CHECK (part IN ('workspace', 'ledger', 'cards', 'index')),
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (transaction, workspace, part)
);

CREATE INDEX changes_at ON changes (changed_at);

ALTER TABLE changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE changes FORCE ROW LEVEL SECURITY;
CREATE POLICY one_workspace ON changes AS RESTRICTIVE
TO memory_owner, memory_harness, memory_reader, memory_indexer, memory_reviewer
USING (workspace = current_workspace()) WITH CHECK (workspace = current_workspace());
CREATE POLICY owner ON changes TO memory_owner USING (true) WITH CHECK (true);

-- Nobody writes a change by hand: a trigger notes it, with the monitor's rights.
GRANT SELECT, INSERT, DELETE ON changes TO memory_monitor;
CREATE POLICY monitor_notes ON changes TO memory_monitor USING (true) WITH CHECK (true);

GRANT SELECT (workspace, card_id, revision, status, updated_at) ON cards TO memory_monitor;
GRANT SELECT (workspace, propagation_id, card_id, state, attempts, created_at, next_attempt_at, settled_at)
ON propagations TO memory_monitor;
GRANT DELETE ON propagations TO memory_monitor;
GRANT SELECT (created_at) ON generations TO memory_monitor;
GRANT SELECT (workspace, generation, card_id, revision, expected_sha256, acknowledged_sha256)
ON projections TO memory_monitor;
CREATE POLICY monitor_counts ON projections FOR SELECT TO memory_monitor USING (true);
CREATE POLICY monitor_prunes ON propagations FOR DELETE TO memory_monitor USING (state = 'done');

CREATE FUNCTION note_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memory, pg_temp
AS $$
BEGIN
    INSERT INTO changes (workspace, part) SELECT DISTINCT w.workspace, TG_ARGV[0] FROM written AS w
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

-- What changed since a cursor, up to the oldest transaction that still runs: `upto` is the next cursor. The row without
-- a workspace is always there, so that the cursor moves where nothing changed.
CREATE FUNCTION monitor_changes(since xid8)
RETURNS TABLE (workspace text, parts text[], oldest timestamptz, upto xid8)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memory, pg_temp
AS $$
WITH horizon AS (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS upto)
SELECT c.workspace, array_agg(DISTINCT c.part), min(c.changed_at), h.upto
FROM horizon AS h
JOIN changes AS c ON c.transaction >= since AND c.transaction < h.upto
JOIN workspaces AS w ON w.workspace = c.workspace AND NOT w.scratch
GROUP BY c.workspace, h.upto
UNION ALL
SELECT NULL, '{}', NULL, h.upto FROM horizon AS h
$$;

-- What is due to be propagated now, by workspace. `newest` and `attempts` change with every further change or try. An
-- index that is filled and does not serve yet, since its writer died just before the switch, is due too: nothing waits in
-- the outbox for it any more. Its number is negative, to be taken for no row of the outbox.
CREATE FUNCTION monitor_due()
RETURNS TABLE (workspace text, rows bigint, newest bigint, attempts bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memory, pg_temp
AS $$
SELECT p.workspace, count(*), max(p.propagation_id), max(p.attempts)::bigint, min(p.created_at)
FROM propagations AS p
JOIN workspaces AS w ON w.workspace = p.workspace AND w.status = 'active' AND NOT w.scratch
WHERE p.state = 'pending' AND p.next_attempt_at <= clock_timestamp()
GROUP BY p.workspace
UNION ALL
SELECT g.workspace, 0, -max(g.generation), 0, max(g.created_at)
FROM generations AS g
JOIN workspaces AS w ON w.workspace = g.workspace AND w.status = 'active' AND NOT w.scratch
WHERE g.state = 'building' AND NOT g.is_rebuild AND NOT EXISTS (
    SELECT FROM propagations AS p WHERE p.workspace = g.workspace AND p.state = 'pending'
)
GROUP BY g.workspace
$$;

-- How each workspace is, in counts and ages: whether its index serves, and how far that follows the cards.
CREATE FUNCTION monitor_health()
RETURNS TABLE (
    workspace text, status text, serving boolean, active bigint, current bigint, leftover bigint,
    pending bigint, parked bigint, oldest_pending timestamptz, oldest_behind timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memory, pg_temp
AS $$
WITH known AS (
    SELECT w.workspace, w.status, g.generation
    FROM workspaces AS w
    LEFT JOIN generations AS g ON g.workspace = w.workspace AND g.state = 'serving'
    WHERE NOT w.scratch
), followed AS (
    SELECT
        c.workspace, c.status = 'active' AS active, c.updated_at,
        p.revision = c.revision AND p.acknowledged_sha256 = p.expected_sha256 AS current,
        p.acknowledged_sha256 IS NOT NULL AS seen
    FROM cards AS c
    JOIN known AS k ON k.workspace = c.workspace
    LEFT JOIN projections AS p
        ON p.workspace = c.workspace AND p.card_id = c.card_id AND p.generation = k.generation
), extents AS (
    SELECT
        f.workspace,
        count(*) FILTER (WHERE f.active) AS active,
        count(*) FILTER (WHERE f.active AND f.current) AS current,
        count(*) FILTER (WHERE NOT f.active AND f.seen) AS leftover,
        min(f.updated_at) FILTER (WHERE f.active AND f.current IS NOT TRUE) AS oldest_behind
    FROM followed AS f GROUP BY f.workspace
), backlog AS (
    SELECT
        p.workspace,
        count(DISTINCT p.card_id) FILTER (WHERE p.state = 'pending') AS pending,
        count(DISTINCT p.card_id) FILTER (WHERE p.state = 'dead') AS parked,
        min(p.created_at) FILTER (WHERE p.state = 'pending') AS oldest
    FROM propagations AS p WHERE p.state <> 'done' GROUP BY p.workspace
)
SELECT
    k.workspace, k.status, k.generation IS NOT NULL, coalesce(e.active, 0), coalesce(e.current, 0),
    coalesce(e.leftover, 0), coalesce(b.pending, 0), coalesce(b.parked, 0), b.oldest, e.oldest_behind
FROM known AS k
LEFT JOIN extents AS e ON e.workspace = k.workspace
LEFT JOIN backlog AS b ON b.workspace = k.workspace
ORDER BY k.workspace
$$;

-- Forget what nobody asks for any more: settled rows of the outbox, and changes that were shown long ago.
CREATE FUNCTION monitor_prune(keep interval)
RETURNS TABLE (propagations bigint, changes bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = memory, pg_temp
AS $$
DECLARE
    before timestamptz := now() - greatest(keep, interval '1 day');
BEGIN
    DELETE FROM memory.propagations AS p WHERE p.state = 'done' AND p.settled_at < before;
    GET DIAGNOSTICS propagations = ROW_COUNT;
    DELETE FROM memory.changes AS c WHERE c.changed_at < before;
    GET DIAGNOSTICS changes = ROW_COUNT;
    RETURN NEXT;
END
$$;

GRANT CREATE ON SCHEMA memory TO memory_monitor;
ALTER FUNCTION note_change() OWNER TO memory_monitor;
ALTER FUNCTION monitor_changes(xid8) OWNER TO memory_monitor;
ALTER FUNCTION monitor_due() OWNER TO memory_monitor;
ALTER FUNCTION monitor_health() OWNER TO memory_monitor;
ALTER FUNCTION monitor_prune(interval) OWNER TO memory_monitor;
REVOKE CREATE ON SCHEMA memory FROM memory_monitor;

SET LOCAL ROLE memory_monitor;
REVOKE EXECUTE ON FUNCTION note_change(), monitor_prune(interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION note_change() TO memory_owner;
GRANT EXECUTE ON FUNCTION monitor_prune(interval) TO memory_indexer;
RESET ROLE;

-- Which table belongs to which part. A deletion needs no note: rows go with a purge, or were derived.
DO $$
DECLARE
    noted record;
BEGIN
    FOR noted IN
        SELECT * FROM (VALUES
            ('workspaces', 'INSERT', 'workspace'), ('workspaces', 'UPDATE', 'workspace'),
            ('sessions', 'INSERT', 'ledger'), ('ledger_entries', 'INSERT', 'ledger'),
            ('ledger_quarantine', 'INSERT', 'ledger'), ('ledger_resets', 'INSERT', 'ledger'),
            ('cards', 'INSERT', 'cards'), ('cards', 'UPDATE', 'cards'), ('card_sources', 'INSERT', 'cards'),
            ('import_quarantine', 'INSERT', 'cards'),
            ('generations', 'INSERT', 'index'), ('generations', 'UPDATE', 'index'),
            ('projections', 'INSERT', 'index'), ('projections', 'UPDATE', 'index')
        ) AS n (name, event, part)
    LOOP
        EXECUTE format(
            'CREATE TRIGGER %I AFTER %s ON %I REFERENCING NEW TABLE AS written '
            'FOR EACH STATEMENT EXECUTE FUNCTION note_change(%L)',
            'note_' || lower(noted.event), noted.event, noted.name, noted.part
        );
    END LOOP;
END
$$;
