-- What purge and settle have announced. The primary key ends with the id, so that all of a session's lie side by side.
CREATE TABLE tooltape.marker (
    projection text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL CONSTRAINT marker_kind CHECK (kind IN ('closed', 'run', 'withdrawn')),
    id         text COLLATE "C" NOT NULL,
    PRIMARY KEY (projection, session_id, kind, id)
);

COMMENT ON TABLE  tooltape.marker IS 'What was announced of a session, by purge and settle. It stays when the session''s rows are gone.';
COMMENT ON COLUMN tooltape.marker.projection IS 'The projection: history, trajectory or skill-review.';
COMMENT ON COLUMN tooltape.marker.session_id IS 'The session.';
COMMENT ON COLUMN tooltape.marker.kind       IS 'closed: the session is purged; run: a run is purged; withdrawn: an event lost a conflict.';
COMMENT ON COLUMN tooltape.marker.id         IS 'The run or the event; empty for closed. \0 stands for U+0000, and \\ for a backslash.';

-- A marker takes back removals that came before it. They are few among what may be set aside.
CREATE INDEX set_aside_unannounced ON tooltape.set_aside (projection, partition) WHERE code = 'unannounced_removal';

-- held counts up with every batch that holds events of parked sessions: with room on the page, no index has to follow.
ALTER TABLE tooltape.parked SET (fillfactor = 50);
