-- The roles and the database of the service, once, as a superuser, or as whoever may create roles and
-- databases: see docs/operate/install.md, Database.
-- Passwords are set afterwards; without one a role cannot log in.
CREATE ROLE payintent_migrate LOGIN;
CREATE ROLE payintent_api LOGIN;
CREATE ROLE payintent_worker LOGIN;
CREATE ROLE payintent_read LOGIN;
ALTER ROLE payintent_read SET default_transaction_read_only = on;
ALTER ROLE payintent_read SET statement_timeout = '30s';
-- Who is no superuser makes a database only for a role that they are in.
GRANT payintent_migrate TO CURRENT_USER;
CREATE DATABASE payintent OWNER payintent_migrate;
REVOKE ALL ON DATABASE payintent FROM PUBLIC;
GRANT CONNECT ON DATABASE payintent TO payintent_api, payintent_worker, payintent_read;
GRANT TEMPORARY ON DATABASE payintent TO payintent_api, payintent_worker;  -- reconcile's tables
REVOKE payintent_migrate FROM CURRENT_USER;
