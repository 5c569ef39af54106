-- A chain is watched until a time that its watcher moves on: whoever reads the database knows it.

ALTER TABLE chain_cursor
    ADD COLUMN watched_since timestamptz,  -- without a break
    ADD COLUMN watched_until timestamptz,  -- in the past: not watched since then
    ADD CONSTRAINT chain_cursor_watched
        CHECK ((watched_since IS NULL) = (watched_until IS NULL));

UPDATE chain_cursor
SET watched_since = polled_at, watched_until = polled_at + interval '180 seconds'
WHERE polled_at IS NOT NULL AND halted IS NULL;
