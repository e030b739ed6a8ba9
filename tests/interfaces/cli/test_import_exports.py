"""`import-pages` with the exports of other programs."""

import bz2
import subprocess
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from tests.interfaces.cli.cli_fixtures import CommandRunner

_SITE_INFO = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo><sitename>Wiki</sitename><case>first-letter</case><namespaces>
    <namespace key="0" case="first-letter" /><namespace key="1" case="first-letter">Diskussion</namespace>
    <namespace key="6" case="first-letter">Datei</namespace><namespace key="10" case="first-letter">Vorlage</namespace>
    <namespace key="12">Hilfe</namespace><namespace key="14" case="first-letter">Kategorie</namespace>
    <namespace key="100" case="first-letter">Handbuch</namespace>
  </namespaces></siteinfo>
"""


@pytest.fixture
def run(data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    run = CommandRunner(data, capsys, monkeypatch)
    assert run("create", "notes").code == 0
    return run


def make_page(title: str, *texts: str, namespace: int = 0, redirect: str = "") -> str:
    """A page of a dump; each text is a revision, a year after the one before."""
    revisions = "".join(
        f"<revision><id>{year}</id><timestamp>{2020 + year}-03-01T10:00:00Z</timestamp>"
        f"<contributor><username>Ada</username><id>1</id></contributor><model>wikitext</model>"
        f'<text bytes="{len(text)}" xml:space="preserve">{escape(text)}</text></revision>'
        for year, text in enumerate(texts)
    )
    leads = f'<redirect title="{redirect}" />' if redirect else ""
    return f"<page><title>{escape(title)}</title><ns>{namespace}</ns><id>1</id>{leads}{revisions}</page>\n"


def write_dump(path: Path, *pages: str, end: str = "</mediawiki>") -> str:
    content = (_SITE_INFO + "".join(pages) + end).encode()
    path.write_bytes(bz2.compress(content) if path.suffix == ".bz2" else content)
    return str(path)


def read_files(data: Path) -> dict[str, bytes]:
    """The files of the only wiki that Wikiholt keeps."""
    (repository,) = (data / "repositories").iterdir()
    git = ["git", "-C", str(repository)]
    names = subprocess.run([*git, "ls-tree", "-rz", "--name-only", "HEAD"], capture_output=True, check=True).stdout
    return {
        name: subprocess.run([*git, "show", f"HEAD:{name}"], capture_output=True, check=True).stdout
        for name in names.decode().split("\0")[:-1]
    }


@pytest.mark.parametrize("name", ["dump.xml", "dump.xml.bz2"])
def test_a_mediawiki_dump_becomes_linked_pages(run: CommandRunner, data: Path, tmp_path: Path, name: str) -> None:
    dump = write_dump(
        tmp_path / name,
        make_page("Home", "old", "See [[tea_Ceremony#How to|the guide]], [[Chai]], [[Hilfe:Edit]] and [[Missing]]."),
        make_page("Tea Ceremony", "{{Box}}\n== How to ==\n[[/Sub]] [[Kategorie:Drinks]] [[Datei:cup.png|thumb|A cup]]"),
        make_page("Tea Ceremony/Sub", "[[../]] [[Diskussion:Home|talk]]"),
        make_page("Chai", "#WEITERLEITUNG [[Tea Ceremony]]", redirect="Tea Ceremony"),
        make_page("Acme Inc.", "A company"),
        make_page("TEA CEREMONY", "Another page"),
        make_page("Hilfe:Edit", "How to edit", namespace=12),
        make_page("Diskussion:Home", "talk", namespace=1),
        make_page("Handbuch:Setup", "Install it", namespace=100),
    )
    code, out, err = run("import-pages", "notes", dump)
    assert (code, err) == (0, "")
    assert "notes: MediaWiki dump, 6 files: 6 created.\n" in out
    assert "left out: 1 of Diskussion, 1 of Handbuch" in out
    assert "1 templates in 1 pages" in out
    files = {name: content.decode() for name, content in read_files(data).items()}
    assert set(files) == {
        "Home.md", "Tea Ceremony.md", "Tea Ceremony/Sub.md", "Acme Inc.md", "TEA CEREMONY (2).md", "Hilfe/Edit.md"
    }  # fmt: skip
    assert files["Home.md"] == (
        '---\ntitle: "Home"\nupdated: "2021-03-01T10:00:00Z"\nauthor: "Ada"\n---\n\n'
        "See [the guide](Tea%20Ceremony.md#how-to), [Chai](Tea%20Ceremony.md), [Hilfe:Edit](Hilfe/Edit.md)"
        " and [Missing](Missing.md).\n"
    )
    assert 'aliases: ["Chai"]\ncategories: ["Drinks"]\n' in files["Tea Ceremony.md"]
    assert "[Sub](Tea%20Ceremony/Sub.md)" in files["Tea Ceremony.md"]
    assert "A cup" in files["Tea Ceremony.md"]
    assert "talk" in files["Tea Ceremony/Sub.md"]
    assert 'title: "Acme Inc."' in files["Acme Inc.md"]

    assert "6 unchanged" in run("import-pages", "notes", dump).out
    assert "7 files: 1 created, 6 unchanged" in run("import-pages", "notes", dump, "--namespace", "handbuch").out
    assert run("sync", "notes").code == 0
    page = run("read", "-w", "notes", "Chai", "--json").parse()
    assert page["path"] == "Tea Ceremony"
    assert page["last_updated"].startswith("2020-03-01T10:00:00")
    assert run("links", "-w", "notes", "Home", "--json").parse()["missing"] == ["Missing"]


def test_a_damaged_dump_gives_the_pages_before_the_damage(run: CommandRunner, data: Path, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "cut.xml", make_page("Home", "tea"), make_page("Other", "x")[:-30], end="")
    code, out, err = run("import-pages", "notes", dump)
    assert code == 2
    assert "1 created, 1 failed" in out
    assert "cut.xml: invalid-page: only 1 pages are imported: the XML is damaged at line" in err
    assert list(read_files(data)) == ["Home.md"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'<!DOCTYPE mediawiki [<!ENTITY a "aaaa">]><mediawiki><page/></mediawiki>', "document type"),
        (b"<html><body>Hi</body></html>", "no MediaWiki dump"),
        (b"<mediawiki></mediawiki>", "contains no pages"),
        (b"PK\x03\x04 cut", "damaged or incomplete zip"),
        (b"7z\xbc\xaf\x27\x1c", "7z archive"),
        (b"BZh91AY cut", "is damaged"),
    ],
)
def test_a_wrong_file_is_an_error_that_says_why(
    run: CommandRunner, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "file").write_bytes(content)
    code, _, err = run("import-pages", "notes", str(tmp_path / "file"))
    assert code == 2
    assert message in err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_dump_may_be_utf_16(run: CommandRunner, data: Path, tmp_path: Path, encoding: str) -> None:
    dump = '<?xml version="1.0" encoding="utf-16"?>' + _SITE_INFO + make_page("Tee", "grün") + "</mediawiki>"
    (tmp_path / "dump.xml").write_bytes(dump.encode(encoding))
    assert run("import-pages", "notes", str(tmp_path / "dump.xml")).code == 0
    assert "grün".encode() in read_files(data)["Tee.md"]


def test_an_unknown_namespace_is_an_error_that_names_those_of_the_dump(run: CommandRunner, tmp_path: Path) -> None:
    dump = write_dump(tmp_path / "dump.xml", make_page("Home", "tea"))
    code, _, err = run("import-pages", "notes", dump, "--namespace", "Manual")
    assert code == 2
    assert "Handbuch" in err


def test_an_obsidian_vault_keeps_notes_links_attachments_and_dates(
    run: CommandRunner, data: Path, tmp_path: Path
) -> None:
    def write(note: str) -> str:
        with zipfile.ZipFile(tmp_path / "vault.zip", "w") as archive:
            for name, text in {
                "Vault/.obsidian/app.json": "{}",
                "Vault/Daily/Today.md": note,
                "Vault/Tea.md": "---\ntags: [drink]\n---\nGreen",
                "Vault/Old.md": "---\nupdated: 2019-01-01\n---\nOld",
                "Vault/img/cup.png": "PNG",
                "__MACOSX/Vault/._Tea.md": "junk",
            }.items():
                archive.writestr(zipfile.ZipInfo(name, (2023, 5, 6, 7, 8, 10)), text)
        return str(tmp_path / "vault.zip")

    code, out, err = run("import-pages", "notes", write("See [[Tea]] ![[cup.png]]"))
    assert (code, err) == (0, "")
    assert "Obsidian vault, 4 files: 4 created.\n  settings of the wiki: dialect=obsidian\n" in out
    assert read_files(data) == {
        "Daily/Today.md": b"---\nupdated: 2023-05-06 07:08:10\n---\nSee [[Tea]] ![[cup.png]]",
        "Tea.md": b"---\nupdated: 2023-05-06 07:08:10\ntags: [drink]\n---\nGreen",
        "Old.md": b"---\nupdated: 2019-01-01\n---\nOld",
        "img/cup.png": b"PNG",
    }
    assert "1 updated, 3 unchanged" in run("import-pages", "notes", write("See [[Tea]]")).out
    assert run("sync", "notes").code == 0
    page = run("read", "-w", "notes", "Daily/Today", "--json").parse()
    assert page["links_to"] == ["Tea"]
    assert page["last_updated"].startswith("2023-05-06T07:08:10")


def test_bad_members_of_an_archive_are_listed_and_the_others_imported(
    run: CommandRunner, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wikiholt.documents.exports.archive._MAX_MEMBER_BYTES", 5_000_000)
    file = tmp_path / "notes.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("good.md", "tea")
        archive.writestr("../../evil.md", "out")
        archive.writestr("/etc/evil.md", "out")
        archive.writestr("bomb.md", b"\0" * 50_000_000)
        archive.writestr("Good.md", "the same name for some file systems")
        archive.writestr("binary.md", bytes(range(256)) * 20)
        archive.writestr("broken.md", "coffee " * 100)
        link = zipfile.ZipInfo("link.md")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        offset = archive.getinfo("broken.md").header_offset
    content = bytearray(file.read_bytes())
    content[offset + 40 : offset + 44] = b"\xff\xff\xff\xff"
    file.write_bytes(content)
    code, out, err = run("import-pages", "notes", str(file))
    assert code == 2
    assert "archive of Markdown, 8 files" in out
    assert "../../evil.md: invalid-page: its name leads out of the archive" in err
    assert "/etc/evil.md: invalid-page: its name leads out of the archive" in err
    assert "link.md: invalid-page: it is a symbolic link" in err
    assert "bomb.md: invalid-page: it is larger than" in err
    assert "broken.md: invalid-page: it is damaged in the archive" in err
    assert "good.md" in read_files(data)
    assert not any("evil" in name or "bomb" in name for name in read_files(data))


def test_json_has_a_result_for_each_file(run: CommandRunner, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("A.md", "tea")
        archive.writestr("b.pdf", "%PDF")
    out = run("import-pages", "notes", str(tmp_path / "a.zip"), "--json").out
    assert '"path": "A", "result": "created"' in out
    assert '"path": "b.pdf", "result": "created"' in out


_IDS = [f"{number:032x}" for number in range(1, 9)]


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_notion_export_keeps_links_databases_and_dates(
    run: CommandRunner, data: Path, tmp_path: Path, is_nested: bool
) -> None:
    home, tasks, row, untitled, other = _IDS[:5]
    files = {
        f"Home {home}.md": f"# Home\n\n[Tasks](Home%20{home}/Tasks%20{tasks}.csv), [Row](Home%20{home}/Tasks%20{tasks}"
        f"/Buy%20tea%20(now)%20{row}.md#Why)"
        f" and ![cup](Home%20{home}/cup%201.png), [online](https://www.notion.so/team/Buy-tea-{row}?pvs=4)"
        f" `[code](Home%20{home}.md)` [web](https://a.org/x_(y))\n",
        f"Home {home}/cup 1.png": "PNG",
        f"Home {home}/Tasks {tasks}.csv": "Name,Status\nOnly the view,x\n",
        f"Home {home}/Tasks {tasks}_all.csv": '\ufeffName,Status\nBuy tea (now),"Done|soon"\nWait,[x](y)\n'
        f'Related,"Buy tea (now) (Tasks%20{tasks}/Buy%20tea%20(now)%20{row}.md), Home (../Home%20{home}.md)"\n',
        f"Home {home}/Tasks {tasks}/Buy tea (now) {row}.md": "# Buy tea (now)\n\nStatus: Done\nDue?: May 2, 2024\n"
        f"Last edited time: June 3, 2024 10:12 AM\n\nBack [home](../../Home%20{home}.md)\n",
        f"Untitled {untitled}.md": "# Untitled\n\nNote: this is text\n",
        f"Untitled {other}.md": "# Untitled\n\nTwo\n",
    }
    export = tmp_path / "export.zip"
    with zipfile.ZipFile(export, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"Export-3f0d5c6e-1111-2222-3333-444455556666/{name}", text)
    if is_nested:
        with zipfile.ZipFile(tmp_path / "parts.zip", "w") as archive:
            archive.write(export, "Export-3f0d5c6e-1111-2222-3333-444455556666-Part-1.zip")
        export = tmp_path / "parts.zip"
    code, out, err = run("import-pages", "notes", str(export))
    assert (code, err) == (0, "")
    assert "Notion export, 6 files: 6 created." in out
    assert {name: content.decode() for name, content in read_files(data).items()} == {
        "Home.md": '---\ntitle: "Home"\n---\n\n[Tasks](Home/Tasks.md), [Row](Home/Tasks/'
        "Buy%20tea%20%28now%29.md#Why)"
        " and ![cup](Home/cup%201.png), [online](Home/Tasks/Buy%20tea%20%28now%29.md)"
        f" `[code](Home%20{home}.md)` [web](https://a.org/x_(y))\n",
        "Home/cup 1.png": "PNG",
        "Home/Tasks.md": '---\ntitle: "Tasks"\n---\n\n| Name | Status |\n| --- | --- |\n'
        "| [Buy tea (now)](Tasks/Buy%20tea%20%28now%29.md) | Done\\|soon |\n| Wait | [x]\\(y) |\n"
        "| Related | [Buy tea (now)](Tasks/Buy%20tea%20%28now%29.md), [Home](../Home.md) |\n",
        "Home/Tasks/Buy tea (now).md": '---\ntitle: "Buy tea (now)"\nupdated: "2024-06-03T10:12:00+00:00"\n'
        'Status: "Done"\n'
        '"Due?": "May 2, 2024"\nLast edited time: "June 3, 2024 10:12 AM"\n---\n\nBack [home](../../Home.md)\n',
        "Untitled.md": '---\ntitle: "Untitled"\n---\n\nNote: this is text\n',
        "Untitled (2).md": '---\ntitle: "Untitled"\n---\n\nTwo\n',
    }
    assert "6 unchanged" in run("import-pages", "notes", str(export)).out
    assert run("sync", "notes").code == 0
    page = run("read", "-w", "notes", "Home", "--json").parse()
    assert (page["links_to"], page["missing"]) == (["Home/Tasks", "Home/Tasks/Buy tea (now)"], [])


def make_confluence_page(title: str, parents: str, content: str, attachments: str = "") -> str:
    """A page as Confluence writes it when it exports a space as HTML."""
    return f"""<!DOCTYPE html><html><head><title>Team &amp; Co : {title}</title></head>
<body>
<div id="page"><div id="main" class="aui-page-panel"><div id="main-header"><div id="breadcrumb-section">
<ol id="breadcrumbs">
<li class="first"><span><a href="index.html">Team &amp; Co</a></span></li>{parents}</ol></div>
<h1 id="title-heading" class="pagetitle"><span id="title-text">
                            Team &amp; Co : {title}
                                                    </span></h1></div>
<div id="content" class="view"><div class="page-metadata">Created by <span class='author'> Ada L.</span>, last modified
by <span class='editor'> Grace H.</span> on Mar 05, 2021</div>
<div id="main-content" class="wiki-content group">{content}</div>
<div class="pageSection group"><div class="pageSectionHeader">
<h2 id="attachments" class="pageSectionTitle">Attachments:</h2></div>
<div class="greybox" align="left">{attachments}</div></div></div></div>
<div id="footer" role="contentinfo"><p>Document generated by Confluence on Jan 01, 2024</p></div></div></body></html>"""


def test_a_confluence_space_keeps_its_hierarchy_links_and_attachments(
    run: CommandRunner, data: Path, tmp_path: Path
) -> None:
    top = '<li><span><a href="Home_11.html">Home</a></span></li>'
    with zipfile.ZipFile(tmp_path / "space.zip", "w") as archive:
        archive.writestr(
            "TEAM/index.html", '<title>Team (Confluence)</title><ul><li><a href="Home_11.html">Home</a></ul>'
        )
        archive.writestr(
            "TEAM/Home_11.html",
            make_confluence_page(
                "Home",
                "",
                '<p>See <a href="22.html#Setup-HowTo">the <b>setup</b></a>, <a href="https://a.org/x">web</a>, '
                '<a href="https://t.atlassian.net/wiki/spaces/TEAM/pages/22/Setup">online</a> and '
                '<a href="attachments/11/77.pdf">the report</a>.</p>'
                '<p><img src="attachments/11/78.png" data-linked-resource-default-alias="cup.png"></p>'
                '<p><a href="attachments/11/77.pdf"><img src="attachments/thumbnails/11/77"></a></p>',
                '<a href="attachments/11/77.pdf">Year report.pdf</a> (application/pdf)<br/>'
                '<a href="attachments/11/78.png">cup.png</a> (image/png)<br/>',
            ),
        )
        archive.writestr(
            "TEAM/22.html",
            make_confluence_page(
                "Setup &lt;1&gt;",
                top,
                '<h2 id="Setup-HowTo">How To</h2><ul><li>one</li></ul><table><tr><th>A</th><th>B</th></tr>'
                '<tr><td><a href="Home_11.html">Home</a></td><td>2</td></tr></table>'
                '<pre class="syntaxhighlighter-pre">x = 1\n</pre><p><a href="33.html">gone</a></p>',
            ),
        )
        archive.writestr("TEAM/attachments/11/77.pdf", "PDF")
        archive.writestr("TEAM/attachments/11/78.png", "PNG")
        archive.writestr("TEAM/styles/site.css", "a {}")
    code, out, err = run("import-pages", "notes", str(tmp_path / "space.zip"))
    assert (code, err) == (0, "")
    assert "Confluence space, 4 files: 4 created." in out
    assert {name: content.decode() for name, content in read_files(data).items()} == {
        "Home.md": '---\ntitle: "Home"\nupdated: "2021-03-05"\nauthor: "Grace H."\n---\n\n'
        "See [the setup](Home/Setup%20%3C1%3E.md#how-to), [web](https://a.org/x), [online](Home/Setup%20%3C1%3E.md)"
        " and [the report](Home/Year%20report.pdf).\n\n![cup.png](Home/cup.png)\n\n"
        "[Year report.pdf](Home/Year%20report.pdf)\n",
        "Home/Setup <1>.md": '---\ntitle: "Setup <1>"\nupdated: "2021-03-05"\nauthor: "Grace H."\n---\n\n'
        "## How To\n\n- one\n\n| A | B |\n| --- | --- |\n| [Home](../Home.md) | 2 |\n\n``````\nx = 1\n``````\n\ngone\n",
        "Home/Year report.pdf": "PDF",
        "Home/cup.png": "PNG",
    }
    assert "4 unchanged" in run("import-pages", "notes", str(tmp_path / "space.zip")).out


def test_an_export_of_confluence_as_xml_is_an_error_that_says_what_to_do(run: CommandRunner, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "space.zip", "w") as archive:
        archive.writestr("entities.xml", "<hibernate-generic/>")
    code, _, err = run("import-pages", "notes", str(tmp_path / "space.zip"))
    assert code == 2
    assert "export a space of Confluence as HTML" in err
