-- concurrently: each statement by itself, so that payments go on being made meanwhile
-- The hash index of 0081 kept all payments with the same order number in one chain of pages, and
-- each new one walked through it: a merchant who always sends the same number made every create and
-- every change of a status slower. A B-tree of the number's hash takes texts of any length too.
CREATE INDEX CONCURRENTLY IF NOT EXISTS payment_order_number
ON payment (hashtextextended(payment_order_id(metadata), 0)) WHERE payment_order_id(metadata) IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS payment_order;
