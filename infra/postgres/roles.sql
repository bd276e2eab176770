-- The two roles and the database, made once by a superuser:
--
--   psql -v owner_password="$OWNER" -v app_password="$APP" -f roles.sql postgresql://postgres@HOST/postgres
--
-- The owner has the tables and migrates: its address is DATABASE_OWNER_URL, for `penstock upgrade`
-- alone. The application may do what `penstock upgrade` grants it and no more. Repeat it to set new
-- passwords. On a managed server without a superuser, run it as the administrator that it gives you.

\set ON_ERROR_STOP on
\if :{?owner_password}
\else
    \warn 'roles.sql: owner_password is not set; wanted psql -v owner_password=…'
    SELECT 1 / 0 AS owner_password_is_not_set;
\endif
\if :{?app_password}
\else
    \warn 'roles.sql: app_password is not set; wanted psql -v app_password=…'
    SELECT 1 / 0 AS app_password_is_not_set;
\endif
\if :{?owner}
\else
    \set owner penstock_owner
\endif
\if :{?app}
\else
    \set app penstock_app
\endif
\if :{?database}
\else
    \set database penstock
\endif

SELECT format('CREATE ROLE %I', :'owner') WHERE to_regrole(quote_ident(:'owner')) IS NULL \gexec
SELECT format('CREATE ROLE %I', :'app') WHERE to_regrole(quote_ident(:'app')) IS NULL \gexec
ALTER ROLE :"owner" LOGIN NOCREATEDB NOCREATEROLE PASSWORD :'owner_password';
ALTER ROLE :"app" LOGIN NOCREATEDB NOCREATEROLE PASSWORD :'app_password';

-- An administrator of a managed server must be a member to give a database away; a superuser is not.
SELECT format('GRANT %I TO CURRENT_USER', :'owner')
WHERE NOT pg_has_role(:'owner', 'MEMBER') \gexec
SELECT format('CREATE DATABASE %I OWNER %I TEMPLATE template0 ENCODING ''UTF8''', :'database', :'owner')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'database') \gexec

-- Nobody else connects, and the application makes no tables of its own.
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO :"app";
\connect :database
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
ALTER SCHEMA public OWNER TO :"owner";
GRANT USAGE ON SCHEMA public TO :"app";
