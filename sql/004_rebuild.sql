-- Rebuilding an index beside the one that serves, removals that are looked at again, and the registry's epoch.

-- A rebuild fills a generation of its own while another one serves. Both are 'building' where a lost collection is filled
-- again meanwhile, so the state alone does not tell them apart.
ALTER TABLE generations ADD COLUMN is_rebuild boolean NOT NULL DEFAULT false;
ALTER TABLE generations ADD COLUMN failure text;
COMMENT ON COLUMN generations.failure IS 'Why it was given up; null unless its state is failed.';

CREATE UNIQUE INDEX generations_one_rebuild ON generations (workspace) WHERE state = 'building' AND is_rebuild;

ALTER TABLE collections ADD COLUMN drop_after timestamptz;
COMMENT ON COLUMN collections.drop_after IS 'From then on no search can still be reading it; null while it is needed.';
COMMENT ON COLUMN collections.dropped_at IS 'Dropped, or found to be somebody else''s: never altered again.';

-- Points that were removed and may come back: a write that hangs in the network has no older point to be fenced by. They
-- are looked at again until no request that was sent before the removal can still be on its way.
CREATE TABLE tombstones (
    workspace    text NOT NULL,
    generation   integer NOT NULL,
    card_id      text NOT NULL,
    verify_until timestamptz NOT NULL,
    PRIMARY KEY (workspace, generation, card_id),
    FOREIGN KEY (workspace, generation) REFERENCES generations,
    FOREIGN KEY (workspace, card_id) REFERENCES cards
);

COMMENT ON COLUMN tombstones.verify_until IS 'A look after this moment that finds no point is the last one.';

-- How far the registry has come. Each collection holds what stood here when it was last written: a registry that is
-- behind its own index was restored from a backup, and must not go on as if it had never been further.
CREATE TABLE registry_epoch (
    workspace text PRIMARY KEY REFERENCES workspaces,
    lineage   uuid NOT NULL DEFAULT gen_random_uuid(),
    counter   bigint NOT NULL DEFAULT 1 CHECK (counter > 0)
);

COMMENT ON COLUMN registry_epoch.lineage IS 'Of this workspace in this registry, and of no other.';
COMMENT ON COLUMN registry_epoch.counter IS 'Raised before each write to the index, in the transaction that says what is written.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['tombstones', 'registry_epoch'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY one_workspace ON %I AS RESTRICTIVE '
            'TO memory_owner, memory_harness, memory_reader, memory_indexer, memory_reviewer '
            'USING (workspace = current_workspace()) WITH CHECK (workspace = current_workspace())', name
        );
        EXECUTE format('CREATE POLICY owner ON %I TO memory_owner USING (true) WITH CHECK (true)', name);
        EXECUTE format('CREATE POLICY indexer_writes ON %I TO memory_indexer USING (true) WITH CHECK (true)', name);
    END LOOP;
END
$$;

GRANT SELECT, INSERT, UPDATE, DELETE ON tombstones TO memory_indexer;
GRANT SELECT, INSERT, UPDATE ON registry_epoch TO memory_indexer;

-- What is due in an active workspace beside its outbox: removals to be looked at a last time, collections to be dropped.
GRANT SELECT (workspace, generation, verify_until) ON tombstones TO memory_monitor;
GRANT SELECT (workspace, generation, state, is_rebuild) ON generations TO memory_monitor;
CREATE POLICY monitor_counts ON generations FOR SELECT TO memory_monitor USING (true);
GRANT SELECT (workspace, drop_after, dropped_at) ON collections TO memory_monitor;
CREATE POLICY monitor_counts ON tombstones FOR SELECT TO memory_monitor USING (true);
CREATE POLICY monitor_counts ON collections FOR SELECT TO memory_monitor USING (true);

CREATE FUNCTION monitor_upkeep()
RETURNS TABLE (workspace text, removals bigint, collections bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memory, pg_temp
AS $$
WITH due AS (
    SELECT t.workspace, 1 AS removal, t.verify_until AS since
    FROM tombstones AS t
    JOIN generations AS g USING (workspace, generation)
    WHERE t.verify_until <= now() AND (g.state = 'serving' OR g.state = 'building' AND NOT g.is_rebuild)
    UNION ALL
    SELECT c.workspace, 0, c.drop_after FROM collections AS c WHERE c.drop_after <= now() AND c.dropped_at IS NULL
)
SELECT d.workspace, sum(d.removal), count(*) - sum(d.removal), min(d.since)
FROM due AS d JOIN workspaces AS w USING (workspace)
WHERE w.status = 'active' AND NOT w.scratch
GROUP BY d.workspace
$$;

GRANT CREATE ON SCHEMA memory TO memory_monitor;
ALTER FUNCTION monitor_upkeep() OWNER TO memory_monitor;
REVOKE CREATE ON SCHEMA memory FROM memory_monitor;
