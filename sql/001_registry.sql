-- The registry: workspaces, ledgers, the human gate, cards, the outbox, and a dense-only index.
--
-- Applied as memory_owner, in a database of its own. The roles exist already: an administrator makes them, migrations
-- only grant. Every table of one workspace's rows has forced row-level security; the workspace is set per transaction
-- (SET LOCAL memory.workspace), and an unset one sees nothing.

CREATE DOMAIN sha256_hex AS text CHECK (VALUE ~ '^[0-9a-f]{64}$');

CREATE FUNCTION current_workspace() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(current_setting('memory.workspace', true), '');

COMMENT ON FUNCTION current_workspace() IS 'The workspace of this transaction; null where none is set.';


-- Workspaces ---------------------------------------------------------------------------------------------------------

CREATE TABLE workspaces (
    workspace         text PRIMARY KEY
                      CHECK (workspace ~ '^[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?$' AND workspace NOT LIKE '%\_\_%'),
    title             text NOT NULL,
    language          text NOT NULL,
    sql_dialect       text NOT NULL,
    default_database  text NOT NULL,
    default_schema    text,
    embedding_profile text NOT NULL,
    four_eyes         boolean NOT NULL DEFAULT false,
    status            text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'retired')),
    scratch           boolean NOT NULL DEFAULT false,
    created_at        timestamptz NOT NULL DEFAULT now(),
    created_by        text NOT NULL DEFAULT session_user
);

COMMENT ON COLUMN workspaces.scratch IS 'Made for an evaluation: no partition, not listed, skipped by sensors.';

-- Every state that a workspace had: who turned four eyes off, and when it was retired.
CREATE TABLE workspace_changes (
    workspace  text NOT NULL REFERENCES workspaces,
    change_id  bigint GENERATED ALWAYS AS IDENTITY,
    settings   jsonb NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by text NOT NULL DEFAULT session_user,
    via        text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    PRIMARY KEY (workspace, change_id)
);

-- A purge is the one exception to the append-only rule. Its row comes first and stays.
CREATE TABLE purges (
    workspace   text NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    reason      text NOT NULL CHECK (reason <> ''),
    purged_by   text NOT NULL DEFAULT session_user,
    PRIMARY KEY (workspace, started_at)
);


-- The ledger ---------------------------------------------------------------------------------------------------------

CREATE TABLE sessions (
    workspace  text NOT NULL REFERENCES workspaces,
    session_id text NOT NULL CHECK (session_id ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$'),
    door       text NOT NULL CHECK (door IN ('append', 'inbox')),
    started_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace, session_id)
);

COMMENT ON COLUMN sessions.door IS 'A session is fed by one door: the append command, or a file in the inbox.';

CREATE TABLE ledger_entries (
    workspace    text NOT NULL,
    entry_id     bigint GENERATED ALWAYS AS IDENTITY,
    session_id   text NOT NULL,
    origin       text NOT NULL CHECK (origin IN ('harness', 'pipeline')),
    seq          bigint CHECK (seq > 0),
    pseq         bigint CHECK (pseq > 0),
    after_seq    bigint CHECK (after_seq >= 0),
    ts           timestamptz NOT NULL,
    phase        text,
    type         text NOT NULL,
    subject      text,
    detail       text NOT NULL DEFAULT '',
    rationale    text NOT NULL DEFAULT '',
    question     text,
    actor        text,
    concepts     text[] NOT NULL DEFAULT '{}',
    tables       text[] NOT NULL DEFAULT '{}',
    scope        text[] NOT NULL DEFAULT '{}',
    dependencies jsonb NOT NULL DEFAULT '[]',
    links        jsonb NOT NULL DEFAULT '[]',
    memories     text[] NOT NULL DEFAULT '{}',
    extra        jsonb NOT NULL DEFAULT '{}',
    file_number  integer CHECK (file_number > 0),
    line_number  bigint CHECK (line_number > 0),
    chain        sha256_hex,
    recorded_at  timestamptz NOT NULL DEFAULT now(),
    recorded_by  text NOT NULL DEFAULT session_user,
    via          text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    PRIMARY KEY (workspace, entry_id),
    FOREIGN KEY (workspace, session_id) REFERENCES sessions,
    CHECK (
        (origin = 'harness' AND seq IS NOT NULL AND pseq IS NULL AND after_seq IS NULL)
        OR (origin = 'pipeline' AND seq IS NULL AND pseq IS NOT NULL AND after_seq IS NOT NULL)
    ),
    CHECK (origin = 'harness' OR type IN ('memory_promoted', 'memory_promotion_declined', 'session_closed'))
);

COMMENT ON COLUMN ledger_entries.pseq IS 'The pipeline''s own sequence within the session.';
COMMENT ON COLUMN ledger_entries.after_seq IS 'The highest seq of the harness at commit; the row stands after it.';

COMMENT ON COLUMN ledger_entries.file_number IS 'Which of the session''s files the line stood in; null for the other door.';
COMMENT ON COLUMN ledger_entries.chain IS 'Hash over the file''s lines up to this one; null for the other door.';

-- Over rows of both origins, though only the harness has a seq: it is also the way to one session's rows.
CREATE UNIQUE INDEX ledger_entries_seq ON ledger_entries (workspace, session_id, seq);
CREATE UNIQUE INDEX ledger_entries_pseq ON ledger_entries (workspace, session_id, pseq) WHERE origin = 'pipeline';

-- How far a file of the inbox was read. `chain` is the hash over all its lines so far.
CREATE TABLE ledger_files (
    workspace   text NOT NULL,
    session_id  text NOT NULL,
    file_number integer NOT NULL DEFAULT 1 CHECK (file_number > 0),
    floor_seq   bigint NOT NULL DEFAULT 0 CHECK (floor_seq >= 0),
    path        text NOT NULL,
    bytes_read  bigint NOT NULL CHECK (bytes_read >= 0),
    lines_read  bigint NOT NULL CHECK (lines_read >= 0),
    chain       sha256_hex NOT NULL,
    read_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace, session_id),
    FOREIGN KEY (workspace, session_id) REFERENCES sessions
);

COMMENT ON COLUMN ledger_files.file_number IS 'One more with each reset: the file is another one from then on.';
COMMENT ON COLUMN ledger_files.floor_seq IS 'The highest seq at the last reset; lines up to it are not taken again.';

-- The owner accepted a changed file as it is. What was read before the reset stays; the old position stays here.
CREATE TABLE ledger_resets (
    workspace   text NOT NULL,
    session_id  text NOT NULL,
    file_number integer NOT NULL CHECK (file_number > 0),
    floor_seq   bigint NOT NULL CHECK (floor_seq >= 0),
    path        text NOT NULL,
    bytes_read  bigint NOT NULL,
    lines_read  bigint NOT NULL,
    chain       sha256_hex NOT NULL,
    reason      text NOT NULL CHECK (reason ~ '[^[:space:]]'),
    reset_at    timestamptz NOT NULL DEFAULT now(),
    reset_by    text NOT NULL DEFAULT session_user,
    via         text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    PRIMARY KEY (workspace, session_id, file_number),
    FOREIGN KEY (workspace, session_id) REFERENCES sessions
);

COMMENT ON COLUMN ledger_resets.file_number IS 'The file that was given up; reading goes on with the next number.';

CREATE TABLE ledger_quarantine (
    workspace      text NOT NULL,
    session_id     text NOT NULL,
    source         text NOT NULL,
    file_number    integer NOT NULL DEFAULT 1 CHECK (file_number > 0),
    line_number    bigint NOT NULL CHECK (line_number > 0),
    reason         text NOT NULL,
    message        text NOT NULL,
    line           bytea NOT NULL,
    chain          sha256_hex NOT NULL,
    quarantined_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace, session_id, source, file_number, line_number)
);

COMMENT ON COLUMN ledger_quarantine.line IS 'The first 64 KiB of the line, as it came.';

-- Refused lines of the files as they are. Those of a file that was given up stay in the table, and out of every count.
CREATE VIEW quarantined_lines WITH (security_invoker = true) AS
SELECT q.* FROM ledger_quarantine AS q JOIN ledger_files AS f USING (workspace, session_id, file_number);

CREATE FUNCTION phase_number(phase text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN phase ~ '^F[1-8]$' THEN substr(phase, 2)::integer END;

CREATE FUNCTION reference_seq(detail text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substring(detail FROM '(?:^|[^0-9A-Za-z_])seq:([0-9]{1,18})(?![0-9A-Za-z_])')::bigint;

CREATE FUNCTION reference_phase(detail text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substring(detail FROM '(?:^|[^0-9A-Za-z_])phase:F([1-8])(?![0-9A-Za-z_])')::integer;

CREATE FUNCTION is_decision(type text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN type IN (
    'concept_clarified', 'table_promoted', 'table_excluded', 'column_promoted', 'column_excluded',
    'memory_rejected', 'decision_retracted'
);

CREATE FUNCTION is_control(type text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN type IN ('session_opened', 'session_closed', 'phase_reopened', 'phase_rolled_back');

CREATE FUNCTION is_marker(type text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN type IN ('memory_promoted', 'memory_promotion_declined');

-- What each row of one session is worth today. The reference, in words and in Python, is core/effective.py.
CREATE FUNCTION session_status(p_workspace text, p_session_id text)
RETURNS TABLE (entry_id bigint, origin text, seq bigint, pseq bigint, status text)
-- The settings keep the planner from inlining this and from comparing every pair of rows: both cost minutes for a session
-- of 20,000 lines, for it knows nothing of how many rows a session, or a step of this, has.
LANGUAGE sql STABLE SET search_path = memory, pg_temp SET enable_nestloop = off
AS $$
WITH RECURSIVE
-- One session's rows on the harness's axis. A row of the pipeline stands after the row that it names.
entries AS (
    SELECT
        e.entry_id, e.origin, e.seq, e.pseq, coalesce(e.seq, e.after_seq) AS position, e.type, e.phase,
        reference_seq(e.detail) AS target,
        CASE
            WHEN e.origin = 'harness' AND e.type = 'phase_rolled_back' THEN reference_phase(e.detail)
            WHEN e.origin = 'harness' AND e.type = 'phase_reopened' THEN reference_phase(e.detail) + 1
        END AS boundary
    FROM ledger_entries AS e
    WHERE e.workspace = p_workspace AND e.session_id = p_session_id
),
-- A decision is stale from the lowest boundary that stands strictly after it.
aged AS (
    SELECT
        *,
        coalesce(phase_number(phase) >= min(boundary) OVER later, false) AS stale
    FROM entries
    WINDOW later AS (ORDER BY position DESC GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
-- Retractions that can act, highest first: each names a decision of the harness before it.
retractions AS (
    SELECT row_number() OVER (ORDER BY r.seq DESC) AS turn, r.seq, r.target
    FROM aged AS r
    JOIN aged AS t ON t.origin = 'harness' AND t.seq = r.target AND t.seq < r.seq AND is_decision(t.type)
    WHERE r.origin = 'harness' AND r.type = 'decision_retracted' AND NOT r.stale
),
-- One after the other, for a retraction counts only where no later one has retracted it.
walk AS (
    SELECT 0::bigint AS turn, '{}'::bigint[] AS retracted
    UNION ALL
    SELECT r.turn, CASE WHEN r.seq = ANY (w.retracted) THEN w.retracted ELSE w.retracted || r.target END
    FROM walk AS w
    JOIN retractions AS r ON r.turn = w.turn + 1
),
retracted AS (
    SELECT DISTINCT unnest(last.retracted) AS seq
    FROM (SELECT w.retracted FROM walk AS w ORDER BY w.turn DESC LIMIT 1) AS last
)
SELECT
    a.entry_id, a.origin, a.seq, a.pseq,
    CASE
        WHEN is_control(a.type) THEN 'control'
        WHEN NOT is_decision(a.type) AND NOT is_marker(a.type) THEN 'inert'
        WHEN a.stale THEN 'stale'
        WHEN x.seq IS NOT NULL AND is_decision(a.type) THEN 'retracted'
        WHEN a.type = 'decision_retracted' AND r.seq IS NULL THEN 'inert'
        ELSE 'effective'
    END AS status
FROM aged AS a
LEFT JOIN retracted AS x ON a.origin = 'harness' AND x.seq = a.seq
LEFT JOIN retractions AS r ON a.origin = 'harness' AND r.seq = a.seq
$$;

-- The session is that of `sessions`, so that who asks for one has the status of that one alone worked out. Its rows are
-- then found by their key alone: were the session named there too, each might be looked for among all of its rows.
CREATE VIEW effective_decisions WITH (security_invoker = true) AS
SELECT
    s.workspace, s.session_id, e.entry_id, e.seq, e.ts, e.phase, e.type, e.subject, e.detail, e.rationale, e.question,
    e.actor, e.concepts, e.tables, e.scope, e.dependencies, e.links, e.memories, e.extra, e.recorded_at, e.recorded_by
FROM sessions AS s
CROSS JOIN LATERAL session_status(s.workspace, s.session_id) AS d
JOIN ledger_entries AS e ON e.workspace = s.workspace AND e.entry_id = d.entry_id
WHERE d.origin = 'harness' AND d.status = 'effective' AND is_decision(e.type);


-- The gate -----------------------------------------------------------------------------------------------------------

CREATE TABLE previews (
    workspace  text NOT NULL,
    preview_id uuid NOT NULL DEFAULT gen_random_uuid(),
    session_id text NOT NULL,
    ledger_seq bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL DEFAULT now() + interval '24 hours',
    created_by text NOT NULL DEFAULT session_user,
    PRIMARY KEY (workspace, preview_id),
    FOREIGN KEY (workspace, session_id) REFERENCES sessions
);

CREATE TABLE preview_candidates (
    workspace    text NOT NULL,
    preview_id   uuid NOT NULL,
    seq          bigint NOT NULL,
    folded_seqs  bigint[] NOT NULL DEFAULT '{}',
    sha256       sha256_hex NOT NULL,
    candidate    jsonb NOT NULL,
    duplicate_of text,
    PRIMARY KEY (workspace, preview_id, seq),
    FOREIGN KEY (workspace, preview_id) REFERENCES previews
);


-- Cards --------------------------------------------------------------------------------------------------------------

CREATE TABLE cards (
    workspace           text NOT NULL REFERENCES workspaces,
    card_id             text NOT NULL CHECK (card_id ~ '^mem-[0-9]{4,18}$'),
    number              bigint NOT NULL CHECK (number > 0),
    kind                text NOT NULL CHECK (kind IN ('memory', 'exemplar', 'evidence')),
    revision            integer NOT NULL DEFAULT 1 CHECK (revision > 0),
    status              text NOT NULL DEFAULT 'active'
                        CHECK (status IN ('draft', 'in_review', 'active', 'retired', 'deleted')),
    type                text NOT NULL,
    subject             text NOT NULL CHECK (subject <> ''),
    detail              text NOT NULL,
    rationale           text NOT NULL,
    question_context    text NOT NULL,
    scope               text[] NOT NULL,
    concepts            text[] NOT NULL,
    tables              text[] NOT NULL,
    dependencies        jsonb NOT NULL,
    links               jsonb NOT NULL,
    fingerprint         sha256_hex NOT NULL,
    dependencies_sha256 sha256_hex NOT NULL,
    scope_sha256        sha256_hex NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    created_by          text NOT NULL DEFAULT session_user,
    updated_at          timestamptz NOT NULL DEFAULT now(),
    updated_by          text NOT NULL DEFAULT session_user,
    PRIMARY KEY (workspace, card_id),
    UNIQUE (workspace, number),
    CONSTRAINT memories_are_clarified_concepts CHECK (kind <> 'memory' OR type = 'concept_clarified'),
    CONSTRAINT other_kinds_have_types_of_their_own CHECK (kind = 'memory' OR type <> 'concept_clarified')
);

-- One active memory per text, places and scope: the same knowledge told twice is one card with two sources.
CREATE UNIQUE INDEX cards_one_active_memory
ON cards (workspace, fingerprint, dependencies_sha256, scope_sha256)
WHERE kind = 'memory' AND status = 'active';

CREATE TABLE card_revisions (
    workspace  text NOT NULL,
    card_id    text NOT NULL,
    revision   integer NOT NULL,
    card       jsonb NOT NULL,
    revised_at timestamptz NOT NULL DEFAULT now(),
    revised_by text NOT NULL DEFAULT session_user,
    via        text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    PRIMARY KEY (workspace, card_id, revision),
    FOREIGN KEY (workspace, card_id) REFERENCES cards
);

CREATE TABLE card_sources (
    workspace    text NOT NULL,
    source_id    bigint GENERATED ALWAYS AS IDENTITY,
    card_id      text NOT NULL,
    provenance   text NOT NULL CHECK (provenance IN ('promotion', 'curation', 'import')),
    session_id   text,
    decision_seq bigint,
    preview_id   uuid,
    imported     jsonb,
    decided_at   timestamptz NOT NULL DEFAULT now(),
    decided_by   text NOT NULL DEFAULT session_user,
    via          text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    PRIMARY KEY (workspace, source_id),
    UNIQUE (workspace, session_id, decision_seq),
    FOREIGN KEY (workspace, card_id) REFERENCES cards,
    FOREIGN KEY (workspace, session_id) REFERENCES sessions,
    CHECK (provenance <> 'promotion' OR (session_id IS NOT NULL AND decision_seq IS NOT NULL)),
    CONSTRAINT imports_name_their_source CHECK (
        (provenance = 'import') = coalesce(imported ? 'workspace' AND imported ? 'id', false)
    )
);

COMMENT ON COLUMN card_sources.imported IS 'The record of a registry file: its workspace, id, revision and own sources.';

CREATE INDEX card_sources_card ON card_sources (workspace, card_id);

-- A record of another registry is imported once, however often its file is.
CREATE UNIQUE INDEX card_sources_imported
ON card_sources (workspace, (imported ->> 'workspace'), (imported ->> 'id')) WHERE provenance = 'import';

-- Lines of a registry file that an import did not take, as they came.
CREATE TABLE import_quarantine (
    workspace      text NOT NULL REFERENCES workspaces,
    file_sha256    sha256_hex NOT NULL,
    line_number    bigint NOT NULL CHECK (line_number > 0),
    reason         text NOT NULL,
    message        text NOT NULL,
    line           bytea NOT NULL,
    quarantined_at timestamptz NOT NULL DEFAULT now(),
    quarantined_by text NOT NULL DEFAULT session_user,
    via            text NOT NULL DEFAULT coalesce(nullif(current_setting('memory.via', true), ''), 'sql'),
    PRIMARY KEY (workspace, file_sha256, line_number)
);

COMMENT ON COLUMN import_quarantine.line IS 'The first 64 KiB of the line, as it came.';


-- Who did what, and when -------------------------------------------------------------------------------------------
-- One row per act, from what each act left where nobody can rewrite it. `source`, `number` and `revision` order the acts
-- of one transaction. The first revision of a card is told by the promotion or the import that made it.

CREATE VIEW audit_events WITH (security_invoker = true) AS
SELECT
    e.workspace, e.recorded_at AS at, e.recorded_by AS actor, e.via,
    CASE e.type
        WHEN 'memory_promoted' THEN 'promoted' WHEN 'memory_promotion_declined' THEN 'declined' ELSE 'closed'
    END AS action,
    e.memories[1] AS card_id, NULL::integer AS revision, e.session_id, reference_seq(e.detail) AS decision_seq,
    coalesce(e.subject, '') AS subject, '{}'::text[] AS changed, '' AS note, 1 AS source, e.entry_id AS number
FROM ledger_entries AS e
WHERE e.origin = 'pipeline'
UNION ALL
SELECT
    r.workspace, r.revised_at, r.revised_by, r.via,
    CASE
        WHEN r.revision = 1 AND made.by_hand THEN 'added'
        WHEN r.revision = 1 THEN 'created'
        WHEN r.card ->> 'status' <> p.card ->> 'status' AND r.card ->> 'status' = 'deleted' THEN 'deleted'
        WHEN r.card ->> 'status' <> p.card ->> 'status' THEN 'status_changed'
        WHEN r.card ->> 'kind' <> p.card ->> 'kind' THEN 'kind_changed'
        WHEN c.changed <> '{links}' THEN 'edited'
        WHEN jsonb_array_length(r.card -> 'links') < jsonb_array_length(p.card -> 'links') THEN 'unlinked'
        ELSE 'linked'
    END,
    r.card_id, r.revision, NULL, NULL, r.card ->> 'subject', c.changed, '', 2, (r.card ->> 'number')::bigint
FROM card_revisions AS r
LEFT JOIN card_revisions AS p
    ON p.workspace = r.workspace AND p.card_id = r.card_id AND p.revision = r.revision - 1
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(field.key ORDER BY field.key) FILTER (WHERE p.card IS NOT NULL), '{}') AS changed
    FROM jsonb_each(r.card) AS field
    WHERE field.value IS DISTINCT FROM p.card -> field.key AND field.key NOT IN (
        'revision', 'updated_at', 'updated_by', 'fingerprint', 'dependencies_sha256', 'scope_sha256'
    )
) AS c
CROSS JOIN LATERAL (
    SELECT
        coalesce(bool_or(s.provenance = 'curation'), false) AS by_hand,
        coalesce(bool_or(s.provenance = 'import' OR EXISTS (
            SELECT FROM ledger_entries AS m
            WHERE m.workspace = s.workspace AND m.session_id = s.session_id AND m.origin = 'pipeline'
                AND m.type = 'memory_promoted' AND reference_seq(m.detail) = s.decision_seq
        )), false) AS told
    FROM card_sources AS s
    WHERE s.workspace = r.workspace AND s.card_id = r.card_id AND s.decided_at = r.revised_at AND r.revision = 1
) AS made
WHERE NOT made.told
UNION ALL
SELECT
    s.workspace, s.decided_at, s.decided_by, s.via, 'imported', s.card_id, NULL, NULL, NULL, c.subject, '{}',
    'from ' || (s.imported ->> 'workspace') || '/' || (s.imported ->> 'id'), 3, s.source_id
FROM card_sources AS s
JOIN cards AS c ON c.workspace = s.workspace AND c.card_id = s.card_id
WHERE s.provenance = 'import'
UNION ALL
SELECT
    q.workspace, q.quarantined_at, q.quarantined_by, q.via, 'import_refused', NULL, NULL, NULL, NULL, '', '{}',
    count(*) || ' lines of file ' || left(q.file_sha256, 12), 4, min(q.line_number)
FROM import_quarantine AS q
GROUP BY q.workspace, q.quarantined_at, q.quarantined_by, q.via, q.file_sha256
UNION ALL
SELECT
    r.workspace, r.reset_at, r.reset_by, r.via, 'source_reset', NULL, NULL, r.session_id, NULL, '', '{}', r.reason, 5,
    r.file_number
FROM ledger_resets AS r
UNION ALL
SELECT
    w.workspace, w.changed_at, w.changed_by, w.via,
    CASE WHEN p.settings IS NULL THEN 'workspace_created' ELSE 'workspace_changed' END,
    NULL, NULL, NULL, NULL, w.settings ->> 'title', ARRAY(
        SELECT field.key FROM jsonb_each(w.settings) AS field
        WHERE p.settings IS NOT NULL AND field.value IS DISTINCT FROM p.settings -> field.key ORDER BY field.key
    ), '', 0, w.change_id
FROM workspace_changes AS w
LEFT JOIN LATERAL (
    SELECT b.settings FROM workspace_changes AS b
    WHERE b.workspace = w.workspace AND b.change_id < w.change_id ORDER BY b.change_id DESC LIMIT 1
) AS p ON true
UNION ALL
SELECT
    p.workspace, p.started_at, p.purged_by, '', 'purged', NULL, NULL, NULL, NULL, '', '{}', p.reason, 6, 0
FROM purges AS p;


-- The outbox and the dense index -------------------------------------------------------------------------------------

CREATE TABLE propagations (
    workspace       text NOT NULL,
    propagation_id  bigint GENERATED ALWAYS AS IDENTITY,
    card_id         text NOT NULL,
    revision        integer NOT NULL,
    state           text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done', 'dead')),
    attempts        integer NOT NULL DEFAULT 0,
    last_error      text,
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    created_at      timestamptz NOT NULL DEFAULT now(),
    settled_at      timestamptz,
    PRIMARY KEY (workspace, propagation_id),
    FOREIGN KEY (workspace, card_id) REFERENCES cards
);

CREATE INDEX propagations_waiting ON propagations (workspace, next_attempt_at, propagation_id) WHERE state = 'pending';
CREATE INDEX propagations_unsettled ON propagations (workspace, card_id) WHERE state <> 'done';

-- Only collections listed here are ever altered; others on the same server never.
CREATE TABLE collections (
    workspace  text NOT NULL REFERENCES workspaces,
    collection text NOT NULL UNIQUE,
    alias      text NOT NULL,
    model      text NOT NULL,
    dimensions integer NOT NULL CHECK (dimensions > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    dropped_at timestamptz,
    PRIMARY KEY (workspace, collection)
);

-- Unchanged text is never embedded again. `vector` is float32, little-endian, of unit length.
CREATE TABLE dense_embeddings (
    workspace    text NOT NULL REFERENCES workspaces,
    model_digest text NOT NULL,
    text_sha256  sha256_hex NOT NULL,
    dimensions   integer NOT NULL CHECK (dimensions > 0),
    vector       bytea NOT NULL,
    pooled       boolean NOT NULL,
    embedded_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace, model_digest, text_sha256),
    CHECK (octet_length(vector) = 4 * dimensions)
);

COMMENT ON COLUMN dense_embeddings.pooled IS 'The text was above the model''s limit: split at sentences, the mean kept.';


-- What no role can do: rewrite history -------------------------------------------------------------------------------
-- Triggers run with the rights of whoever writes. Their search path is fixed, so that nobody can lead them to temporary
-- tables of the same names.

CREATE FUNCTION refuse_rewriting() RETURNS trigger
LANGUAGE plpgsql SET search_path = memory, pg_temp
AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (
        SELECT FROM purges AS p WHERE p.workspace = OLD.workspace AND p.finished_at IS NULL
    ) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger_entries
FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger_quarantine
FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger_resets
FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON card_revisions
FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON workspace_changes
FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON card_sources
FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON preview_candidates
FOR EACH ROW EXECUTE FUNCTION refuse_rewriting();

-- The trace of a purge stays: all that may change of it is that it is over.
CREATE FUNCTION keep_purge() RETURNS trigger
LANGUAGE plpgsql SET search_path = memory, pg_temp
AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL
        AND (NEW.workspace, NEW.started_at, NEW.reason, NEW.purged_by)
            = (OLD.workspace, OLD.started_at, OLD.reason, OLD.purged_by)
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'purges is append-only: % refused', TG_OP USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON purges
FOR EACH ROW EXECUTE FUNCTION keep_purge();

CREATE FUNCTION refuse_truncation() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: TRUNCATE refused', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER no_truncation BEFORE TRUNCATE ON ledger_entries EXECUTE FUNCTION refuse_truncation();
CREATE TRIGGER no_truncation BEFORE TRUNCATE ON ledger_quarantine EXECUTE FUNCTION refuse_truncation();
CREATE TRIGGER no_truncation BEFORE TRUNCATE ON purges EXECUTE FUNCTION refuse_truncation();
CREATE TRIGGER no_truncation BEFORE TRUNCATE ON ledger_resets EXECUTE FUNCTION refuse_truncation();
CREATE TRIGGER no_truncation BEFORE TRUNCATE ON card_revisions EXECUTE FUNCTION refuse_truncation();
CREATE TRIGGER no_truncation BEFORE TRUNCATE ON workspace_changes EXECUTE FUNCTION refuse_truncation();
CREATE TRIGGER no_truncation BEFORE TRUNCATE ON card_sources EXECUTE FUNCTION refuse_truncation();
CREATE TRIGGER no_truncation BEFORE TRUNCATE ON preview_candidates EXECUTE FUNCTION refuse_truncation();

-- What was read of a file is never forgotten in passing: only a reset goes back, and only the owner may write its number.
CREATE FUNCTION refuse_unreading() RETURNS trigger
LANGUAGE plpgsql SET search_path = memory, pg_temp
AS $$
BEGIN
    IF NEW.file_number = OLD.file_number AND (NEW.bytes_read < OLD.bytes_read OR NEW.lines_read < OLD.lines_read) THEN
        RAISE EXCEPTION 'the file of session %/% was read up to line %', OLD.workspace, OLD.session_id, OLD.lines_read
        USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER only_forward BEFORE UPDATE ON ledger_files FOR EACH ROW EXECUTE FUNCTION refuse_unreading();

-- A workspace keeps every state that it had.
CREATE FUNCTION workspace_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = memory, pg_temp
AS $$
BEGIN
    INSERT INTO workspace_changes (workspace, settings) VALUES (NEW.workspace, to_jsonb(NEW));
    RETURN NULL;
END
$$;

CREATE TRIGGER workspace_change AFTER INSERT OR UPDATE ON workspaces
FOR EACH ROW EXECUTE FUNCTION workspace_change();

-- Every change of a card raises its revision by one, keeps the revision, and leaves one row in the outbox: in the same
-- transaction, whoever makes the change.
CREATE FUNCTION card_changes() RETURNS trigger
LANGUAGE plpgsql SET search_path = memory, pg_temp
AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.revision <> OLD.revision + 1 THEN
        RAISE EXCEPTION 'card %/% is at revision %, not %', OLD.workspace, OLD.card_id, OLD.revision, NEW.revision - 1
        USING ERRCODE = 'serialization_failure';
    END IF;
    INSERT INTO card_revisions (workspace, card_id, revision, card)
    VALUES (NEW.workspace, NEW.card_id, NEW.revision, to_jsonb(NEW));
    INSERT INTO propagations (workspace, card_id, revision)
    VALUES (NEW.workspace, NEW.card_id, NEW.revision);
    RETURN NULL;
END
$$;

CREATE TRIGGER card_changes AFTER INSERT OR UPDATE ON cards
FOR EACH ROW EXECUTE FUNCTION card_changes();


-- One workspace never sees another -----------------------------------------------------------------------------------

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'workspaces', 'workspace_changes', 'purges', 'sessions', 'ledger_entries', 'ledger_files', 'ledger_resets',
        'ledger_quarantine', 'previews', 'preview_candidates', 'cards', 'card_revisions', 'card_sources', 'import_quarantine',
        'propagations', 'collections', 'dense_embeddings'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        -- Permissive: what may be done at all. Restrictive: never outside the transaction's workspace.
        EXECUTE format(
            'CREATE POLICY one_workspace ON %I AS RESTRICTIVE '
            'TO memory_owner, memory_harness, memory_reader, memory_indexer, memory_reviewer '
            'USING (workspace = current_workspace()) WITH CHECK (workspace = current_workspace())', name
        );
        EXECUTE format('CREATE POLICY owner ON %I TO memory_owner USING (true) WITH CHECK (true)', name);
    END LOOP;
END
$$;

CREATE FUNCTION grant_reading(tables text[], role text) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY tables LOOP
        EXECUTE format('GRANT SELECT ON %I TO %I', name, role);
        EXECUTE format('CREATE POLICY %I ON %I FOR SELECT TO %I USING (true)', role || '_reads', name, role);
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA memory TO memory_harness, memory_reader, memory_indexer, memory_reviewer, memory_monitor;

SELECT grant_reading(
    ARRAY['workspaces', 'sessions', 'ledger_entries', 'ledger_files', 'ledger_resets', 'ledger_quarantine',
          'previews', 'preview_candidates', 'cards', 'card_sources', 'collections'], 'memory_harness');
SELECT grant_reading(
    ARRAY['workspaces', 'sessions', 'ledger_entries', 'cards', 'card_sources', 'collections'], 'memory_reader');
SELECT grant_reading(
    ARRAY['workspaces', 'sessions', 'ledger_entries', 'ledger_quarantine', 'cards', 'card_sources',
          'import_quarantine', 'propagations', 'collections', 'dense_embeddings'], 'memory_indexer');
SELECT grant_reading(
    ARRAY['workspaces', 'workspace_changes', 'purges', 'sessions', 'ledger_entries', 'ledger_resets', 'previews',
          'preview_candidates', 'cards', 'card_revisions', 'card_sources', 'import_quarantine', 'propagations',
          'collections'], 'memory_reviewer');

-- The view runs with its reader's rights: policies of the tables behind it hold.
GRANT SELECT ON effective_decisions TO memory_harness, memory_reader, memory_indexer, memory_reviewer;
GRANT SELECT ON quarantined_lines TO memory_harness;
GRANT SELECT ON audit_events TO memory_reviewer;

-- The harness writes its own rows and previews. Rows of origin pipeline are out of its reach.
GRANT INSERT ON sessions, ledger_entries, ledger_quarantine, previews, preview_candidates TO memory_harness;
GRANT INSERT ON ledger_files TO memory_harness;
GRANT UPDATE (path, bytes_read, lines_read, chain, read_at) ON ledger_files TO memory_harness;
CREATE POLICY harness_opens ON sessions FOR INSERT TO memory_harness WITH CHECK (true);
CREATE POLICY harness_writes ON ledger_entries FOR INSERT TO memory_harness
WITH CHECK (origin = 'harness' AND recorded_by = session_user);
CREATE POLICY harness_writes ON ledger_quarantine FOR INSERT TO memory_harness WITH CHECK (true);
CREATE POLICY harness_writes ON ledger_files FOR INSERT TO memory_harness WITH CHECK (true);
CREATE POLICY harness_advances ON ledger_files FOR UPDATE TO memory_harness USING (true) WITH CHECK (true);
CREATE POLICY harness_writes ON previews FOR INSERT TO memory_harness WITH CHECK (created_by = session_user);
CREATE POLICY harness_writes ON preview_candidates FOR INSERT TO memory_harness WITH CHECK (true);

-- Only the reviewer writes cards and the pipeline's markers, under the name with which PostgreSQL knows them.
GRANT INSERT ON ledger_entries, cards, card_revisions, card_sources, import_quarantine, propagations
TO memory_reviewer;
GRANT UPDATE (
    kind, revision, status, type, subject, detail, rationale, question_context, scope, concepts, tables, dependencies,
    links, fingerprint, dependencies_sha256, scope_sha256, updated_at, updated_by
) ON cards TO memory_reviewer;
CREATE POLICY reviewer_marks ON ledger_entries FOR INSERT TO memory_reviewer
WITH CHECK (origin = 'pipeline' AND recorded_by = session_user);
CREATE POLICY reviewer_adds ON cards FOR INSERT TO memory_reviewer
WITH CHECK (created_by = session_user AND updated_by = session_user);
CREATE POLICY reviewer_revises ON cards FOR UPDATE TO memory_reviewer
USING (true) WITH CHECK (updated_by = session_user);
CREATE POLICY reviewer_keeps ON card_revisions FOR INSERT TO memory_reviewer WITH CHECK (revised_by = session_user);
CREATE POLICY reviewer_adds ON card_sources FOR INSERT TO memory_reviewer WITH CHECK (decided_by = session_user);
CREATE POLICY reviewer_refuses ON import_quarantine FOR INSERT TO memory_reviewer
WITH CHECK (quarantined_by = session_user);
CREATE POLICY reviewer_queues ON propagations FOR INSERT TO memory_reviewer WITH CHECK (state = 'pending');

-- Whoever owns tables may do anything with them, except where a restriction says otherwise: to migrate is one task, to
-- decide another. A revision is kept by the change that makes it, never by itself.
CREATE POLICY owner_adds_none ON cards AS RESTRICTIVE FOR INSERT TO memory_owner WITH CHECK (false);
CREATE POLICY owner_adds_none ON card_sources AS RESTRICTIVE FOR INSERT TO memory_owner WITH CHECK (false);
CREATE POLICY owner_marks_none ON ledger_entries AS RESTRICTIVE FOR INSERT TO memory_owner
WITH CHECK (origin <> 'pipeline');
CREATE POLICY kept_by_a_change ON card_revisions AS RESTRICTIVE FOR INSERT TO memory_owner, memory_reviewer
WITH CHECK (pg_trigger_depth() > 0);

-- The indexer derives: it settles the outbox and keeps embeddings and collections, and writes no knowledge.
-- It may queue a card again, for a repair.
GRANT UPDATE (state, attempts, last_error, next_attempt_at, settled_at) ON propagations TO memory_indexer;
GRANT INSERT ON propagations TO memory_indexer;
GRANT INSERT, UPDATE, DELETE ON collections, dense_embeddings TO memory_indexer;
CREATE POLICY indexer_queues ON propagations FOR INSERT TO memory_indexer WITH CHECK (state = 'pending');
CREATE POLICY indexer_settles ON propagations FOR UPDATE TO memory_indexer USING (true) WITH CHECK (true);
CREATE POLICY indexer_writes ON collections TO memory_indexer USING (true) WITH CHECK (true);
CREATE POLICY indexer_writes ON dense_embeddings TO memory_indexer USING (true) WITH CHECK (true);


-- What sensors may know of all workspaces: slugs, counts and ages, never content ------------------------------------
-- The functions belong to memory_monitor, which cannot log in, for forced row-level security binds an owner too.

GRANT SELECT (workspace, status, scratch, created_at) ON workspaces TO memory_monitor;
GRANT SELECT (workspace, state, created_at, next_attempt_at) ON propagations TO memory_monitor;
GRANT SELECT (workspace, status) ON cards TO memory_monitor;
CREATE POLICY monitor_counts ON workspaces FOR SELECT TO memory_monitor USING (true);
CREATE POLICY monitor_counts ON propagations FOR SELECT TO memory_monitor USING (true);
CREATE POLICY monitor_counts ON cards FOR SELECT TO memory_monitor USING (true);

CREATE FUNCTION monitor_workspaces()
RETURNS TABLE (workspace text, status text, scratch boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memory, pg_temp
AS $$ SELECT w.workspace, w.status, w.scratch FROM workspaces AS w ORDER BY w.workspace $$;

CREATE FUNCTION monitor_pending()
RETURNS TABLE (workspace text, pending bigint, dead bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memory, pg_temp
AS $$
SELECT
    p.workspace,
    count(*) FILTER (WHERE p.state = 'pending'),
    count(*) FILTER (WHERE p.state = 'dead'),
    min(p.created_at) FILTER (WHERE p.state = 'pending')
FROM propagations AS p
WHERE p.state <> 'done'
GROUP BY p.workspace
$$;

CREATE FUNCTION monitor_active_cards()
RETURNS TABLE (workspace text, cards bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = memory, pg_temp
AS $$ SELECT c.workspace, count(*) FROM cards AS c WHERE c.status = 'active' GROUP BY c.workspace $$;

GRANT CREATE ON SCHEMA memory TO memory_monitor;
ALTER FUNCTION monitor_workspaces() OWNER TO memory_monitor;
ALTER FUNCTION monitor_pending() OWNER TO memory_monitor;
ALTER FUNCTION monitor_active_cards() OWNER TO memory_monitor;
REVOKE CREATE ON SCHEMA memory FROM memory_monitor;
