-- The columns of fixed width come first: no row then loses bytes to padding.
CREATE TABLE tooltape.history_item (
    seq             bigint  NOT NULL CHECK (seq > 0),
    occurred_at     timestamptz,
    item_index      integer NOT NULL CHECK (item_index >= 0),
    builder_version integer NOT NULL,
    event_id        uuid    NOT NULL,
    session_id      text COLLATE "C" NOT NULL,
    run_id          text COLLATE "C",
    item            json    NOT NULL,
    PRIMARY KEY (session_id, seq, item_index)
);

-- lz4 takes a third of pglz's time on large items. A server that was built without it keeps pglz.
DO $$
BEGIN
    ALTER TABLE tooltape.history_item ALTER COLUMN item SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'this server has no lz4: items are compressed with pglz';
END
$$;

COMMENT ON TABLE  tooltape.history_item IS 'The items of each session, in the order (seq, item_index): what a model must be shown again.';
COMMENT ON COLUMN tooltape.history_item.session_id      IS 'The session.';
COMMENT ON COLUMN tooltape.history_item.seq             IS 'The seq of the event that the item comes from.';
COMMENT ON COLUMN tooltape.history_item.item_index      IS 'The place of the item among those of its event, from 0.';
COMMENT ON COLUMN tooltape.history_item.event_id        IS 'The event.';
COMMENT ON COLUMN tooltape.history_item.run_id          IS 'The run that the event belongs to; NULL outside a run.';
COMMENT ON COLUMN tooltape.history_item.item            IS 'The item, kept as it was written: json, not jsonb, which refuses \u0000 and rewrites numbers.';
COMMENT ON COLUMN tooltape.history_item.occurred_at     IS 'When it happened; NULL where the source did not record it.';
COMMENT ON COLUMN tooltape.history_item.builder_version IS 'The version of the projection''s logic that made the row.';
