-- Positions, watermarks, parked sessions and records set aside: the same for every projection.
--
-- Ids are COLLATE "C": compared as bytes, which is faster, and the same on every machine.

CREATE TABLE tooltape.position (
    projection      text COLLATE "C" NOT NULL,
    partition       integer NOT NULL,
    topic_id        uuid    NOT NULL,
    partitions      integer NOT NULL CHECK (partitions > 0),
    next_offset     bigint  NOT NULL CHECK (next_offset >= 0),
    epoch           bigint  NOT NULL,
    batch           bigint  NOT NULL,
    builder_version integer NOT NULL,
    PRIMARY KEY (projection, partition)
) WITH (fillfactor = 50);

COMMENT ON TABLE  tooltape.position IS 'Where a projection stands in a partition of tooltape.events. Every transaction that writes rows first locks its line here.';
COMMENT ON COLUMN tooltape.position.projection      IS 'The projection: history, trajectory or skill-review.';
COMMENT ON COLUMN tooltape.position.partition       IS 'The partition of the topic.';
COMMENT ON COLUMN tooltape.position.topic_id        IS 'The topic''s id in Kafka. A topic deleted and made again is another one, and its offsets mean something else.';
COMMENT ON COLUMN tooltape.position.partitions      IS 'How many partitions the topic has. With another number, sessions lie on other partitions.';
COMMENT ON COLUMN tooltape.position.next_offset     IS 'The next offset to read.';
COMMENT ON COLUMN tooltape.position.epoch           IS 'Goes up with every assignment of the partition, so that an earlier holder can write no more.';
COMMENT ON COLUMN tooltape.position.batch           IS 'Goes up with every transaction, so that a decision that was read before another''s is noticed.';
COMMENT ON COLUMN tooltape.position.builder_version IS 'The version of the projection''s logic that made the rows.';

-- fillfactor: every batch updates its sessions' lines; with room on the page, no index has to follow.
CREATE TABLE tooltape.watermark (
    projection text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    seq        bigint  NOT NULL CHECK (seq > 0),
    event_id   uuid    NOT NULL,
    partition  integer NOT NULL,
    PRIMARY KEY (projection, session_id)
) WITH (fillfactor = 50);

COMMENT ON TABLE  tooltape.watermark IS 'How far each session is projected.';
COMMENT ON COLUMN tooltape.watermark.projection IS 'The projection: history, trajectory or skill-review.';
COMMENT ON COLUMN tooltape.watermark.session_id IS 'The session.';
COMMENT ON COLUMN tooltape.watermark.seq        IS 'The highest seq of the session that is projected; so is every one below it.';
COMMENT ON COLUMN tooltape.watermark.event_id   IS 'The event with that seq.';
COMMENT ON COLUMN tooltape.watermark.partition  IS 'The partition that the session''s events come from.';

CREATE TABLE tooltape.parked (
    projection      text COLLATE "C" NOT NULL,
    session_id      text COLLATE "C" NOT NULL,
    partition       integer NOT NULL,
    from_offset     bigint  NOT NULL,
    at_offset       bigint  NOT NULL,
    seq             bigint  NOT NULL,
    type            text COLLATE "C" NOT NULL,
    payload_version integer NOT NULL,
    code            text COLLATE "C" NOT NULL CONSTRAINT parked_code CHECK (code IN (
        'bad_frame', 'unknown_schema', 'bad_envelope', 'bad_payload', 'left_over_bytes', 'too_many_items', 'key_mismatch', 'unknown_type',
        'newer_version', 'result_item_missing', 'bad_event', 'gap', 'conflict', 'store_refused')),
    message         text        NOT NULL,
    since           timestamptz NOT NULL,
    held            bigint      NOT NULL,
    builds          text[]      NOT NULL,
    due             boolean     NOT NULL,
    PRIMARY KEY (projection, session_id)
);

-- What a partition's second reader scans for, from the lowest offset on.
CREATE INDEX parked_partition ON tooltape.parked (projection, partition, from_offset);

COMMENT ON TABLE  tooltape.parked IS 'Sessions whose next event could not be projected. The session''s watermark stays before that event; other sessions go on.';
COMMENT ON COLUMN tooltape.parked.projection      IS 'The projection: history, trajectory or skill-review.';
COMMENT ON COLUMN tooltape.parked.session_id      IS 'The session that waits.';
COMMENT ON COLUMN tooltape.parked.partition       IS 'The partition that the session''s events come from.';
COMMENT ON COLUMN tooltape.parked.from_offset     IS 'The lowest offset of the session that is not projected. Parking again never raises it.';
COMMENT ON COLUMN tooltape.parked.at_offset       IS 'The offset of the event at fault.';
COMMENT ON COLUMN tooltape.parked.seq             IS 'The seq of the event at fault.';
COMMENT ON COLUMN tooltape.parked.type            IS 'The type of the event at fault; empty where it could not be read.';
COMMENT ON COLUMN tooltape.parked.payload_version IS 'The payload version of the event at fault; 0 where it could not be read.';
COMMENT ON COLUMN tooltape.parked.code            IS 'Why it could not be projected.';
COMMENT ON COLUMN tooltape.parked.message         IS 'Why, as a sentence, without content of the event.';
COMMENT ON COLUMN tooltape.parked.since           IS 'When the session was parked.';
COMMENT ON COLUMN tooltape.parked.held            IS 'How many events of the session wait behind the one at fault.';
COMMENT ON COLUMN tooltape.parked.builds          IS 'The builds that have tried.';
COMMENT ON COLUMN tooltape.parked.due             IS 'Whether the session is to be tried again.';

CREATE TABLE tooltape.set_aside (
    projection text COLLATE "C" NOT NULL,
    partition  integer NOT NULL,
    at_offset  bigint  NOT NULL,
    key        bytea,
    value      bytea,
    code       text COLLATE "C" NOT NULL CONSTRAINT set_aside_code CHECK (code IN (
        'bad_key', 'empty_value', 'unannounced_removal', 'wrong_partition')),
    message    text        NOT NULL,
    since      timestamptz NOT NULL,
    PRIMARY KEY (projection, partition, at_offset)
);

COMMENT ON TABLE  tooltape.set_aside IS 'Records that belong to no session, kept for a person to see.';
COMMENT ON COLUMN tooltape.set_aside.projection IS 'The projection that met the record: history, trajectory or skill-review.';
COMMENT ON COLUMN tooltape.set_aside.partition  IS 'The partition of the record.';
COMMENT ON COLUMN tooltape.set_aside.at_offset  IS 'The offset of the record.';
COMMENT ON COLUMN tooltape.set_aside.key        IS 'The record''s key as it came; NULL where it had none.';
COMMENT ON COLUMN tooltape.set_aside.value      IS 'The record''s value as it came; NULL in a tombstone.';
COMMENT ON COLUMN tooltape.set_aside.code       IS 'Why it was set aside.';
COMMENT ON COLUMN tooltape.set_aside.message    IS 'Why, as a sentence.';
COMMENT ON COLUMN tooltape.set_aside.since      IS 'When it was set aside.';

-- Every write begins with this function. It locks the position, and ends the whole transaction where the decision behind it no longer
-- holds: the statements that follow are already under way, so an error is the only thing that stops them.
CREATE FUNCTION tooltape.move_position(
    in_projection text, in_partition integer, in_epoch bigint, in_batch bigint, in_next_offset bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    stored_epoch bigint;
BEGIN
    UPDATE tooltape.position AS p SET batch = p.batch + 1, next_offset = in_next_offset
    WHERE p.projection = in_projection AND p.partition = in_partition AND p.epoch = in_epoch AND p.batch = in_batch;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT p.epoch INTO stored_epoch FROM tooltape.position AS p
    WHERE p.projection = in_projection AND p.partition = in_partition;
    IF stored_epoch = in_epoch THEN
        RAISE EXCEPTION 'the position moved since it was read' USING ERRCODE = 'TT002';
    END IF;
    RAISE EXCEPTION 'the partition was taken over by another holder' USING ERRCODE = 'TT001';
END
$$;

COMMENT ON FUNCTION tooltape.move_position IS 'Locks a position and moves it. Raises TT001 where another holder took the partition over, TT002 where the position moved since it was read.';
