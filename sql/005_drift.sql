-- Drift: what a comparison of the two stores has to read, and what it proposes where only a human may repair.

-- A row of `cards` that is not its own kept revision was changed past the queue. Whoever compares the stores sees both;
-- who made a revision, and by which door, stays the reviewer's to know.
GRANT SELECT (workspace, card_id, revision, card) ON card_revisions TO memory_indexer;
CREATE POLICY memory_indexer_compares ON card_revisions FOR SELECT TO memory_indexer USING (true);

-- A finding that no program may repair, for it is about what a human decided. `finding` is the identity of what was
-- found: the same finding has one proposal at a time, and none after a human has rejected it.
CREATE TABLE repair_proposals (
    workspace    text NOT NULL REFERENCES workspaces,
    proposal_id  bigint GENERATED ALWAYS AS IDENTITY,
    finding      sha256_hex NOT NULL,
    occurrence   integer NOT NULL CHECK (occurrence > 0),
    kind         text NOT NULL CHECK (kind IN ('unsupported_card', 'forbidden_type', 'marker_without_card')),
    card_id      text,
    session_id   text,
    decision_seq bigint,
    reason       text NOT NULL,
    repair       text NOT NULL CHECK (repair IN ('delete_card', 'promote_decision', 'dismiss')),
    proposed_at  timestamptz NOT NULL DEFAULT now(),
    proposed_by  text NOT NULL DEFAULT session_user,
    via          text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    PRIMARY KEY (workspace, proposal_id),
    UNIQUE (workspace, finding, occurrence),
    FOREIGN KEY (workspace, card_id) REFERENCES cards,
    FOREIGN KEY (workspace, session_id) REFERENCES sessions
);

COMMENT ON COLUMN repair_proposals.occurrence IS 'One more each time that the finding came back after it had gone.';

-- What became of a proposal; it is open as long as nothing has.
CREATE TABLE repair_outcomes (
    workspace   text NOT NULL,
    proposal_id bigint NOT NULL,
    outcome     text NOT NULL CHECK (outcome IN ('obsolete', 'approved', 'rejected')),
    decided_at  timestamptz NOT NULL DEFAULT now(),
    decided_by  text NOT NULL DEFAULT session_user,
    via         text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    PRIMARY KEY (workspace, proposal_id),
    FOREIGN KEY (workspace, proposal_id) REFERENCES repair_proposals
);

COMMENT ON COLUMN repair_outcomes.outcome IS 'obsolete: the finding is gone. The other two are a human''s.';

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['repair_proposals', 'repair_outcomes'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY one_workspace ON %I AS RESTRICTIVE '
            'TO memory_owner, memory_harness, memory_reader, memory_indexer, memory_reviewer '
            'USING (workspace = current_workspace()) WITH CHECK (workspace = current_workspace())', name
        );
        EXECUTE format('CREATE POLICY owner ON %I TO memory_owner USING (true) WITH CHECK (true)', name);
        EXECUTE format(
            'CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION refuse_rewriting()',
            name
        );
        EXECUTE format(
            'CREATE TRIGGER no_truncation BEFORE TRUNCATE ON %I EXECUTE FUNCTION refuse_truncation()', name
        );
    END LOOP;
END
$$;

SELECT grant_reading(ARRAY['repair_proposals', 'repair_outcomes'], 'memory_indexer');
SELECT grant_reading(ARRAY['repair_proposals', 'repair_outcomes'], 'memory_reviewer');

-- Who compares may propose, and take back what is no longer found. What a human says to a proposal is the reviewer's.
GRANT INSERT ON repair_proposals, repair_outcomes TO memory_indexer;
CREATE POLICY indexer_proposes ON repair_proposals FOR INSERT TO memory_indexer
WITH CHECK (proposed_by = session_user AND proposed_at = now());
CREATE POLICY indexer_withdraws ON repair_outcomes FOR INSERT TO memory_indexer
WITH CHECK (outcome = 'obsolete' AND decided_by = session_user AND decided_at = now());

CREATE VIEW repairs WITH (security_invoker = true) AS
SELECT
    p.workspace, p.proposal_id, p.finding, p.kind, p.card_id, p.session_id, p.decision_seq, p.reason, p.repair,
    coalesce(o.outcome, 'open') AS state, p.proposed_at, p.proposed_by, o.decided_at, o.decided_by
FROM repair_proposals AS p
LEFT JOIN repair_outcomes AS o USING (workspace, proposal_id);

GRANT SELECT ON repairs TO memory_indexer, memory_reviewer;
