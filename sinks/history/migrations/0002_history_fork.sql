CREATE TABLE tooltape.history_fork (
    session_id        text COLLATE "C" PRIMARY KEY,
    parent_session_id text COLLATE "C" NOT NULL,
    parent_seq        bigint NOT NULL
);

COMMENT ON TABLE  tooltape.history_fork IS 'Sessions that go on from a point of another one: the other''s items up to there are their beginning too.';
COMMENT ON COLUMN tooltape.history_fork.session_id        IS 'The session.';
COMMENT ON COLUMN tooltape.history_fork.parent_session_id IS 'The session that it was forked from (forked_from.session_id).';
COMMENT ON COLUMN tooltape.history_fork.parent_seq        IS 'The last event that both share (forked_from.seq).';
