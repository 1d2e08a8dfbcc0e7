-- Who points to a card: the links of cards, turned round. A search asks which cards supersede those that it found.
--
-- Derived from `cards.links` by a trigger, in the transaction of the change. A table with plain text columns, for under
-- row-level security no index on the JSON itself is used: its operators may leak what they see.

CREATE TABLE card_links (
    workspace text NOT NULL,
    card_id   text NOT NULL,
    relation  text NOT NULL,
    target    text NOT NULL,
    PRIMARY KEY (workspace, card_id, relation, target),
    FOREIGN KEY (workspace, card_id) REFERENCES cards ON DELETE CASCADE
);

COMMENT ON COLUMN card_links.target IS 'A card, which need not exist, or a decision (seq:5) that is not promoted.';

CREATE INDEX card_links_target ON card_links (workspace, target, relation);

CREATE FUNCTION keep_card_links() RETURNS trigger
LANGUAGE plpgsql SET search_path = memory, pg_temp
AS $$
BEGIN
    DELETE FROM card_links WHERE workspace = NEW.workspace AND card_id = NEW.card_id;
    INSERT INTO card_links (workspace, card_id, relation, target)
    SELECT DISTINCT NEW.workspace, NEW.card_id, link.relation, link.target
    FROM jsonb_to_recordset(NEW.links) AS link (relation text, target text)
    WHERE link.relation IS NOT NULL AND link.target IS NOT NULL;
    RETURN NULL;
END
$$;

CREATE TRIGGER card_links_of_new AFTER INSERT ON cards
FOR EACH ROW WHEN (NEW.links <> '[]') EXECUTE FUNCTION keep_card_links();

CREATE TRIGGER card_links_of_changed AFTER UPDATE ON cards
FOR EACH ROW WHEN (NEW.links <> OLD.links) EXECUTE FUNCTION keep_card_links();

ALTER TABLE card_links ENABLE ROW LEVEL SECURITY;
ALTER TABLE card_links FORCE ROW LEVEL SECURITY;
CREATE POLICY one_workspace ON card_links AS RESTRICTIVE
TO memory_owner, memory_harness, memory_reader, memory_indexer, memory_reviewer
USING (workspace = current_workspace()) WITH CHECK (workspace = current_workspace());
CREATE POLICY owner ON card_links TO memory_owner USING (true) WITH CHECK (true);
SELECT grant_reading(ARRAY['card_links'], 'memory_reader');
SELECT grant_reading(ARRAY['card_links'], 'memory_reviewer');

-- Links change with their card, never by themselves.
GRANT INSERT, DELETE ON card_links TO memory_reviewer;
CREATE POLICY reviewer_adds ON card_links FOR INSERT TO memory_reviewer WITH CHECK (true);
CREATE POLICY reviewer_removes ON card_links FOR DELETE TO memory_reviewer USING (true);
CREATE POLICY added_by_a_change ON card_links AS RESTRICTIVE FOR INSERT TO memory_reviewer
WITH CHECK (pg_trigger_depth() > 0);
CREATE POLICY removed_by_a_change ON card_links AS RESTRICTIVE FOR DELETE TO memory_reviewer
USING (pg_trigger_depth() > 0);

-- What exists already. Under forced security one workspace at a time, and counted: a statement that may see nothing
-- changes nothing, silently.
DO $$
DECLARE
    known record;
    active bigint;
BEGIN
    FOR known IN
        SELECT w.workspace, w.scratch, coalesce(a.cards, 0) AS cards
        FROM monitor_workspaces() AS w LEFT JOIN monitor_active_cards() AS a USING (workspace)
    LOOP
        PERFORM set_config('memory.workspace', known.workspace, true);
        INSERT INTO card_links (workspace, card_id, relation, target)
        SELECT DISTINCT c.workspace, c.card_id, link.relation, link.target
        FROM cards AS c CROSS JOIN LATERAL jsonb_to_recordset(c.links) AS link (relation text, target text)
        WHERE link.relation IS NOT NULL AND link.target IS NOT NULL;
        SELECT count(*) INTO active FROM cards AS c WHERE c.status = 'active';
        IF active <> known.cards AND NOT known.scratch THEN  -- the monitor counts no scratch ones
            RAISE EXCEPTION 'workspace %: % of % active cards were seen', known.workspace, active, known.cards;
        END IF;
    END LOOP;
    PERFORM set_config('memory.workspace', '', true);
END
$$;
