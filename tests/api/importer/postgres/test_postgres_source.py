"""A shared PostgreSQL table with pgvector on a real server, read in one snapshot and never written."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.api.importer.import_fixtures import ImportFixture
from tests.support.postgres_server import PostgresServer
from wikiholt.api.importer.document_importer import DocumentImporter, DocumentImportOptions
from wikiholt.api.importer.importer import Importer, ImportOptions, ImportReport
from wikiholt.api.importer.postgres_source import PostgresTable
from wikiholt.api.importer.shared_index import OwnershipRules
from wikiholt.errors import InvalidImport


@pytest.fixture(scope="module")
def server(pg: PostgresServer) -> Iterator[str]:
    """The address of a database, with a password that no error may contain."""
    address = pg.create_database()
    yield address
    pg.drop_database(address)


@pytest.fixture(scope="module")
def imports(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImportFixture]:
    """Both wikis in the table `chunks` of the shared design, and in a table with other column names."""
    imports = ImportFixture(tmp_path_factory.mktemp("postgres"))
    rows = imports.make_rows("harbour", tenant="harbour") + imports.make_rows("garden", tenant="t-2")
    with psycopg.connect(server) as connection:
        connection.execute(
            "CREATE TABLE chunks (id serial, tenant_id text, source text, chunk_index int, content text,"
            " embedding vector(32))"
        )
        connection.execute('CREATE TABLE "Odd Pieces" (whose text, "the page" text, words text, numbers real[])')
        for row in rows:
            vector = str(row.vector.tolist())
            connection.execute(
                "INSERT INTO chunks (tenant_id, source, chunk_index, content, embedding) VALUES (%s, %s, %s, %s, %s)",
                (row.tenant, f"{row.page}.md", row.index, row.text, vector),
            )
            connection.execute(
                'INSERT INTO "Odd Pieces" VALUES (%s, %s, %s, %s)',
                (row.tenant, row.page, row.text, row.vector.tolist()),
            )
        connection.execute("INSERT INTO chunks (tenant_id, source) VALUES ('harbour', 'home'), (NULL, NULL)")
        connection.execute("CREATE TABLE other (id int, body text)")
    yield imports
    imports.close()


RULES = OwnershipRules(tenants={"t-2": "garden", "": "-"})


def run_import(imports: ImportFixture, table: PostgresTable, rules: OwnershipRules = RULES) -> ImportReport:
    return Importer(imports.service, imports.data, ImportOptions(rules, dry_run=True)).run(lambda _: table)


def test_a_shared_table_is_imported_by_tenant(imports: ImportFixture, server: str) -> None:
    report = Importer(imports.service, imports.data, ImportOptions(RULES)).run(lambda _: PostgresTable(server))
    assert report.rows == 7
    assert {wiki.slug: wiki.reused for wiki in report.wikis} == {"harbour": 3, "garden": 2}
    assert report.dropped.counts == {"wrong-dimensions": 1, "left-out": 1}
    assert all(wiki.proof for wiki in report.wikis)


def test_unknown_tenants_are_rejected_with_their_row_counts(imports: ImportFixture, server: str) -> None:
    assert run_import(imports, PostgresTable(server), OwnershipRules()).unclear.tenants == {"": 1, "t-2": 2}


def test_a_table_with_other_column_names_is_read_once_they_are_configured(imports: ImportFixture, server: str) -> None:
    names = {"tenant": "whose", "page": "the page", "text": "words", "vector": "numbers"}
    report = run_import(imports, PostgresTable(server, "public.Odd Pieces", names))
    assert {wiki.slug: wiki.rows for wiki in report.wikis} == {"harbour": 3, "garden": 2}


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ("other", {}, "no column was found for tenant and page and text and vector"),
        ("other", {"tenant": "id"}, "page and text and vector"),
        ("chunks", {"tenant": "nobody"}, "there is no 'nobody'"),
        ("chunks", {"owner": "id"}, "there is no 'owner'"),
        ("missing", {}, "does not exist"),
        ('chunks"; DROP TABLE chunks; --', {}, "does not exist"),
        ("", {}, "PostgreSQL error"),
    ],
)
def test_a_table_that_cannot_be_read_is_a_clear_error(
    imports: ImportFixture, server: str, table: str, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidImport) as caught:
        run_import(imports, PostgresTable(server, table, columns))
    assert message in caught.value.message
    assert run_import(imports, PostgresTable(server)).rows == 7


def test_no_error_contains_the_password(imports: ImportFixture, server: str) -> None:
    secret = str(psycopg.conninfo.conninfo_to_dict(server)["password"])
    name = str(psycopg.conninfo.conninfo_to_dict(server)["dbname"])
    nowhere, nobody = server.replace(name, "nowhere"), f"postgresql://u:{secret}@127.0.0.1:1/x"
    for address in (nowhere, nobody, f"={secret}"):
        table = PostgresTable(address)
        with pytest.raises(InvalidImport) as caught:
            run_import(imports, table)
        assert secret not in f"{caught.value.message} {caught.value.hint} {table!r} {table.name}"


def test_documents_become_pages_of_one_wiki_per_tenant(imports: ImportFixture, server: str) -> None:
    with psycopg.connect(server) as connection:
        connection.execute("CREATE TABLE documents (tenant_id text, path text, content text)")
        for tenant, path, text in (("acme", "Home", "# Acme\n"), ("globex", "Home", "# Globex\n")):
            connection.execute("INSERT INTO documents VALUES (%s, %s, %s)", (tenant, path, text))
    importer = DocumentImporter(imports.service, imports.data, DocumentImportOptions(create=True))
    report = importer.run(lambda _: PostgresTable(server, "documents", needs_vectors=False))
    assert {wiki.slug: dict(wiki.outcomes) for wiki in report.wikis} == {
        "acme": {"created": 1},
        "globex": {"created": 1},
    }
    for slug, title in (("acme", "Acme"), ("globex", "Globex")):
        assert imports.service.get_handle(slug).pages.read("Home").content == f"# {title}\n"
