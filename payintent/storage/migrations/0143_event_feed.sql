-- The feed of a merchant's events: numbers that are given when the merchant reads it, under the
-- lock of its row here, so that a number is never given behind one that was read (decision 71).
ALTER TABLE event ADD COLUMN feed_position bigint;
ALTER TABLE event ADD CONSTRAINT event_feed_position CHECK (feed_position > 0) NOT VALID;
CREATE TABLE event_feed (
    merchant_id bigint PRIMARY KEY REFERENCES merchant (id),
    -- The lowest id that a number is given to: events had 30 days when the feed was first read.
    first_id uuid NOT NULL,
    last_position bigint NOT NULL DEFAULT 0 CONSTRAINT event_feed_last CHECK (last_position >= 0)
);
