-- Run this once as a superuser if you use PgBouncer in transaction mode. Without a pooler, the processes
-- set these parameters themselves. See docs/operate/configure.md.
ALTER ROLE payintent_api SET lock_timeout = '2s';
ALTER ROLE payintent_api SET statement_timeout = '5s';
ALTER ROLE payintent_api SET idle_in_transaction_session_timeout = '10s';
ALTER ROLE payintent_api SET jit = off;
ALTER ROLE payintent_api SET random_page_cost = 1.1;
ALTER ROLE payintent_worker SET lock_timeout = '2s';
ALTER ROLE payintent_worker SET statement_timeout = '5s';
ALTER ROLE payintent_worker SET idle_in_transaction_session_timeout = '10s';
ALTER ROLE payintent_worker SET jit = off;
ALTER ROLE payintent_worker SET random_page_cost = 1.1;
