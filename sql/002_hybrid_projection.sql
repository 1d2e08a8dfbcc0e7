-- The hybrid projection: generations of an index, what each must hold, and sparse vectors.
--
-- Cards that exist stay authoritative and readable. Their projections become pending: the points of the dense-only
-- index belong to no generation, so recall cannot take them for current until both vectors are built.

-- One row per index that was built for a workspace. Settings only name what is desired; this says what serves.
CREATE TABLE generations (
    workspace       text NOT NULL,
    generation      integer NOT NULL CHECK (generation > 0),
    collection      text NOT NULL,
    state           text NOT NULL CHECK (state IN ('building', 'serving', 'replaced', 'failed')),
    format          integer NOT NULL,
    profile         text NOT NULL,
    profile_version integer NOT NULL,
    model           text NOT NULL,
    model_digest    text NOT NULL,
    dimensions      integer NOT NULL CHECK (dimensions > 0),
    analyser        text NOT NULL,
    language        text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    serving_since   timestamptz,
    replaced_at     timestamptz,
    PRIMARY KEY (workspace, generation),
    FOREIGN KEY (workspace, collection) REFERENCES collections
);

CREATE UNIQUE INDEX generations_one_serving ON generations (workspace) WHERE state = 'serving';

-- Per card and generation: the hash of what the point must hold, and of what the server was seen to hold.
CREATE TABLE projections (
    workspace           text NOT NULL,
    generation          integer NOT NULL,
    card_id             text NOT NULL,
    revision            integer NOT NULL,
    expected_sha256     sha256_hex,
    acknowledged_sha256 sha256_hex,
    dense_sha256        sha256_hex,
    lexical_sha256      sha256_hex,
    acknowledged_at     timestamptz,
    PRIMARY KEY (workspace, generation, card_id),
    FOREIGN KEY (workspace, generation) REFERENCES generations,
    FOREIGN KEY (workspace, card_id) REFERENCES cards
);

COMMENT ON COLUMN projections.dense_sha256 IS 'The text behind the acknowledged vector: where it is unchanged, a payload write is enough.';
COMMENT ON COLUMN projections.expected_sha256 IS 'Null where the card must have no point: deleted, retired or a draft.';

CREATE TABLE sparse_embeddings (
    workspace   text NOT NULL REFERENCES workspaces,
    analyser    text NOT NULL,
    text_sha256 sha256_hex NOT NULL,
    indices     bigint[] NOT NULL,
    weights     real[] NOT NULL,
    encoded_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace, analyser, text_sha256),
    CHECK (cardinality(indices) = cardinality(weights))
);

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['generations', 'projections', 'sparse_embeddings'] LOOP
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

GRANT SELECT, INSERT, UPDATE, DELETE ON generations, projections, sparse_embeddings TO memory_indexer;
SELECT grant_reading(ARRAY['generations', 'projections'], 'memory_reader');
SELECT grant_reading(ARRAY['generations', 'projections'], 'memory_harness');
SELECT grant_reading(ARRAY['generations', 'projections'], 'memory_reviewer');

-- Every active card waits for its two vectors. Under forced security an owner's statement touches only the workspace
-- that is set, and touches nothing silently: so one by one, and counted against what the monitor sees.
DO $$
DECLARE
    waiting record;
    queued bigint;
BEGIN
    FOR waiting IN SELECT * FROM monitor_active_cards() LOOP
        PERFORM set_config('memory.workspace', waiting.workspace, true);
        INSERT INTO propagations (workspace, card_id, revision)
        SELECT c.workspace, c.card_id, c.revision
        FROM cards AS c
        WHERE c.status = 'active' AND NOT EXISTS (
            SELECT FROM propagations AS p
            WHERE p.workspace = c.workspace AND p.card_id = c.card_id AND p.state = 'pending'
        );
        SELECT count(DISTINCT p.card_id) INTO queued
        FROM propagations AS p JOIN cards AS c USING (workspace, card_id)
        WHERE p.state = 'pending' AND c.status = 'active';
        IF queued <> waiting.cards THEN
            RAISE EXCEPTION 'workspace %: % of % cards were queued', waiting.workspace, queued, waiting.cards;
        END IF;
    END LOOP;
    PERFORM set_config('memory.workspace', '', true);
END
$$;
