-- Evaluation: golden questions of a workspace, figures of its retrieval over time, and scratch workspaces out of sight.

-- A question with the cards that must answer it, asked in one place. The same question there again replaces the cards.
CREATE TABLE golden_queries (
    workspace       text NOT NULL REFERENCES workspaces,
    golden_id       bigint GENERATED ALWAYS AS IDENTITY,
    question        text NOT NULL CHECK (question ~ '[^[:space:]]'),
    question_sha256 sha256_hex NOT NULL,
    database        text NOT NULL,
    schema          text,
    expected        text[] NOT NULL CHECK (cardinality(expected) > 0),
    added_at        timestamptz NOT NULL DEFAULT now(),
    added_by        text NOT NULL DEFAULT session_user,
    via             text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    PRIMARY KEY (workspace, golden_id),
    UNIQUE NULLS NOT DISTINCT (workspace, question_sha256, database, schema)
);

COMMENT ON COLUMN golden_queries.question_sha256 IS 'Of the folded question: spelling apart, it is asked once in a place.';

-- One row per measurement. `golden_sha256` says which golden questions were asked: only equal sets are compared.
CREATE TABLE quality_figures (
    workspace     text NOT NULL REFERENCES workspaces,
    figure_id     bigint GENERATED ALWAYS AS IDENTITY,
    measured_at   timestamptz NOT NULL DEFAULT now(),
    measured_by   text NOT NULL DEFAULT session_user,
    via           text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    generation    integer NOT NULL,
    cards         bigint NOT NULL,
    sampled       integer NOT NULL CHECK (sampled >= 0),
    self_recall   double precision CHECK (self_recall BETWEEN 0 AND 1),
    golden        integer NOT NULL CHECK (golden >= 0),
    golden_sha256 sha256_hex NOT NULL,
    ndcg_at_10    double precision CHECK (ndcg_at_10 BETWEEN 0 AND 1),
    recall_at_1   double precision CHECK (recall_at_1 BETWEEN 0 AND 1),
    recall_at_5   double precision CHECK (recall_at_5 BETWEEN 0 AND 1),
    mrr           double precision CHECK (mrr BETWEEN 0 AND 1),
    accepted_at   timestamptz,
    accepted_by   text,
    PRIMARY KEY (workspace, figure_id),
    CHECK ((accepted_at IS NULL) = (accepted_by IS NULL))
);

COMMENT ON COLUMN quality_figures.accepted_at IS 'A reviewer said that later figures are to be held against this one.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['golden_queries', 'quality_figures'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY one_workspace ON %I AS RESTRICTIVE '
            'TO memory_owner, memory_harness, memory_reader, memory_indexer, memory_reviewer '
            'USING (workspace = current_workspace()) WITH CHECK (workspace = current_workspace())', name
        );
        EXECUTE format('CREATE POLICY owner ON %I TO memory_owner USING (true) WITH CHECK (true)', name);
    END LOOP;
END
$$;

SELECT grant_reading(ARRAY['golden_queries', 'quality_figures'], 'memory_reader');
SELECT grant_reading(ARRAY['golden_queries', 'quality_figures'], 'memory_indexer');
SELECT grant_reading(ARRAY['golden_queries', 'quality_figures'], 'memory_reviewer');

-- What is right is for the reviewer to say; what was found is for the indexer to write down.
GRANT INSERT, UPDATE (question, expected, added_at, added_by, via) ON golden_queries TO memory_reviewer;
CREATE POLICY reviewer_adds ON golden_queries FOR INSERT TO memory_reviewer WITH CHECK (added_by = session_user);
CREATE POLICY reviewer_replaces ON golden_queries FOR UPDATE TO memory_reviewer
USING (true) WITH CHECK (added_by = session_user);
GRANT INSERT ON quality_figures TO memory_indexer;
CREATE POLICY indexer_measures ON quality_figures FOR INSERT TO memory_indexer
WITH CHECK (measured_by = session_user AND accepted_at IS NULL);
GRANT UPDATE (accepted_at, accepted_by) ON quality_figures TO memory_reviewer;
CREATE POLICY reviewer_accepts ON quality_figures FOR UPDATE TO memory_reviewer
USING (true) WITH CHECK (accepted_by = session_user);

-- Sensors have nothing to do with what an evaluation makes and takes away again. `monitor_workspaces` still tells all,
-- with their flag: the evaluation itself looks for what a killed one left.
GRANT CREATE ON SCHEMA memory TO memory_monitor;
SET LOCAL ROLE memory_monitor;

CREATE OR REPLACE FUNCTION monitor_pending()
RETURNS TABLE (workspace text, pending bigint, dead bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memory, pg_temp
AS $$
SELECT
    p.workspace,
    count(*) FILTER (WHERE p.state = 'pending'),
    count(*) FILTER (WHERE p.state = 'dead'),
    min(p.created_at) FILTER (WHERE p.state = 'pending')
FROM propagations AS p
JOIN workspaces AS w ON w.workspace = p.workspace AND NOT w.scratch
WHERE p.state <> 'done'
GROUP BY p.workspace
$$;

CREATE OR REPLACE FUNCTION monitor_active_cards()
RETURNS TABLE (workspace text, cards bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memory, pg_temp
AS $$
SELECT c.workspace, count(*)
FROM cards AS c
JOIN workspaces AS w ON w.workspace = c.workspace AND NOT w.scratch
WHERE c.status = 'active'
GROUP BY c.workspace
$$;

RESET ROLE;
REVOKE CREATE ON SCHEMA memory FROM memory_monitor;
