-- Create the roles and the database for the service. Run this file once, as a superuser or as a user who can
-- create roles and databases. See docs/operate/install.md, Create the database.
-- Set the passwords afterwards. A role without a password cannot log in.
CREATE ROLE payintent_migrate LOGIN;
CREATE ROLE payintent_api LOGIN;
CREATE ROLE payintent_worker LOGIN;
CREATE ROLE payintent_read LOGIN;
ALTER ROLE payintent_read SET default_transaction_read_only = on;
ALTER ROLE payintent_read SET statement_timeout = '30s';
-- A user who is not a superuser can create a database only for a role of which the user is a member.
GRANT payintent_migrate TO CURRENT_USER;
CREATE DATABASE payintent OWNER payintent_migrate;
REVOKE ALL ON DATABASE payintent FROM PUBLIC;
GRANT CONNECT ON DATABASE payintent TO payintent_api, payintent_worker, payintent_read;
GRANT TEMPORARY ON DATABASE payintent TO payintent_api, payintent_worker;  -- for reconciliation
REVOKE payintent_migrate FROM CURRENT_USER;
