"""A record of every write transaction of an index, made by the database itself."""

import time

import psycopg

_INSTALL = """
CREATE SCHEMA IF NOT EXISTS audit;
CREATE TABLE IF NOT EXISTS audit.writes (id bigserial, wiki text, fence bigint, holder text);
CREATE OR REPLACE FUNCTION audit.record() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
  INSERT INTO audit.writes (wiki, fence, holder) VALUES (TG_TABLE_SCHEMA, NEW.fence, NEW.holder); RETURN NULL;
END $$;
GRANT USAGE ON SCHEMA audit TO PUBLIC;
"""
_INSTALL_TRIGGERS = """
DO $$ DECLARE s text; BEGIN
  FOR s IN SELECT nspname FROM pg_namespace WHERE nspname ~ '^w_[a-z0-9]{8,}$' LOOP
    EXECUTE format('CREATE OR REPLACE TRIGGER audit AFTER UPDATE OR INSERT ON %I.state FOR EACH ROW '
      'WHEN (NEW.name = ''writer'' AND NEW.holder IS NOT NULL) EXECUTE FUNCTION audit.record()', s);
  END LOOP; END $$
"""
# A fence belongs to one holder, and no holder writes with an older fence than one before it.
_FIND_DOUBLE_WRITERS = """
SELECT wiki, fence FROM audit.writes GROUP BY wiki, fence HAVING count(DISTINCT holder) > 1
UNION
SELECT wiki, fence FROM (SELECT wiki, fence, max(fence) OVER (PARTITION BY wiki ORDER BY id) AS newest
  FROM audit.writes) AS w WHERE fence < newest
"""


class Audit:
    """Triggers on the leases of the wikis that exist now."""

    def __init__(self, address: str) -> None:
        self._address = address

    def install(self) -> None:
        with psycopg.connect(self._address, autocommit=True) as connection:
            connection.execute(_INSTALL)
            for _ in range(10):
                try:
                    connection.execute(_INSTALL_TRIGGERS)
                except psycopg.errors.DeadlockDetected:
                    time.sleep(1)
                else:
                    return
        raise RuntimeError("the triggers could not be created")

    def count(self) -> int:
        with psycopg.connect(self._address) as connection:
            ((count,),) = connection.execute("SELECT count(*) FROM audit.writes").fetchall()
        return int(count)

    def find_double_writers(self) -> list[tuple[str, int]]:
        with psycopg.connect(self._address) as connection:
            return connection.execute(_FIND_DOUBLE_WRITERS).fetchall()
