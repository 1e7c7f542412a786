ALTER TABLE tooltape.history_fork ADD COLUMN run_id text COLLATE "C";

COMMENT ON COLUMN tooltape.history_fork.run_id IS 'The run that the event which says so belongs to; NULL outside a run. When the run is purged, the line goes.';
