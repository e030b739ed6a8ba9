"""The table of settings. Everything that can be set is a row here, and nothing else can."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from wikiholt.settings.setting import Setting
from wikiholt.text.languages import LANGUAGES
from wikiholt.vectors import CROSSOVER

ANCHORS = ("github", "otterwiki")


def url_fault(template: str) -> str:
    """What is wrong with the template of a link, or nothing."""
    if "{path}" not in template:
        return "it must contain {path}"
    odd = [name for name in re.findall(r"\{[^{}]*\}", template) if name != "{path}"]
    if odd:
        return f"{odd[0]} is not known, only {{path}} is"
    scheme = re.match(r"\s*([A-Za-z][A-Za-z0-9+.-]*):", template)
    return "a link must be http or https" if scheme and scheme[1].lower() not in ("http", "https") else ""


def domain_fault(domain: str) -> str:
    """What is wrong with the domain that wikis' host names end in, or nothing."""
    label = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    return (
        "" if not domain or re.fullmatch(rf"{label}(?:\.{label})*", domain) else "it is no host name in small letters"
    )


def place_fault(place: str) -> str:
    """What is wrong with a directory, or nothing."""
    try:
        return "" if str(Path(place).expanduser()).strip(" .") and "\0" not in place else "it names no directory"
    except RuntimeError:  # `~somebody` who does not exist
        return "there is no such user"


def server_fault(url: str) -> str:
    """What is wrong with the address of a server, or nothing."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return "it is no address"
    if parts.scheme not in ("http", "https") or not named:
        return "it must be http:// or https:// and a host"
    if parts.username or parts.password:
        return "a secret belongs into chroma.token"
    return "" if parts.path in ("", "/") and not parts.query and not parts.fragment else "it must end after the port"


def store_fault(address: str) -> str:
    """What is wrong with the address of a database, or nothing; it is never repeated, for it holds a password."""
    if not address:
        return ""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("postgresql", "postgres") and (parts.netloc or parts.path or parts.query)
    except ValueError:
        return "it is no address"
    return "" if good and "://" in address and address.isprintable() else "it must begin with postgresql://"


def resource_fault(url: str) -> str:
    """What is wrong with the address that this service is reached by, or nothing."""
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it must be http:// or https:// and a host"
    return "it must end without / and have no ?, # or @" if re.search(r"[?#@]|/$", url) else ""


def keys_fault(place: str) -> str:
    """What is wrong with the place of public keys, or nothing."""
    if "://" not in place:
        return place_fault(place) if place else ""
    parts = urlsplit(place)
    local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    return "" if local or (parts.scheme == "https" and parts.hostname) else "it must be a file or begin with https://"


def _named(name: str) -> str:
    """What is wrong with a name of Chroma's, or nothing."""
    good = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,510}[A-Za-z0-9]", name)
    return "" if good else "it must be 3 or more letters, digits, dots, hyphens or underscores"


SETTINGS = (
    Setting(
        "data",
        Path,
        Path("wikiholt-data"),
        "The directory of indexes and registry. Relative to the directory the command runs in.",
    ),
    Setting(
        "store",
        str,
        "",
        "Where indexes, registry and keys live: empty means files in data; postgresql://… a database that many nodes "
        "share. Caches, mirrors and backups stay in data.",
        check=store_fault,
        secret=True,
    ),
    Setting(
        "postgres.lease",
        float,
        15.0,
        "Seconds after which the work of a node that fell silent is taken over by another.",
        minimum=0.5,
        maximum=3600,
    ),
    Setting(
        "postgres.connections",
        int,
        32,
        "How many connections to databases this process keeps open for all wikis together.",
        minimum=1,
        maximum=10_000,
    ),
    Setting(
        "postgres.hnsw_from",
        int,
        10_000,
        "From how many passages on a wiki in PostgreSQL gets an HNSW index; below, search is exact.",
        minimum=1,
    ),
    Setting("model", str, "all-MiniLM-L6-v2", "The embedding model: a known name, or the directory of an ONNX model."),
    Setting("precision", str, "int8", "The precision of the model's weights; which there are depends on the model."),
    Setting("threads", int, 0, "Threads the model may use; 0 means one for each core.", minimum=0, maximum=1024),
    Setting(
        "rerank.model",
        str,
        "",
        "The reranker, which reads the best pages of a search again: a known name, or the directory of an ONNX "
        "cross-encoder; empty means none.",
    ),
    Setting(
        "rerank.budget",
        int,
        500,
        "Milliseconds the reranker has for a search; the answer is the one without it when they do not suffice.",
        minimum=1,
        maximum=60_000,
    ),
    Setting("chunk.target_tokens", int, 200, "How many tokens a passage should have.", minimum=20, maximum=8192),
    Setting(
        "chunk.overlap_tokens",
        int,
        50,
        "How many tokens neighbouring passages share; less than chunk.target_tokens.",
        minimum=0,
        maximum=4096,
    ),
    Setting("language", str, "english", "The language words are reduced to their stems in.", choices=LANGUAGES),
    Setting(
        "languages",
        tuple,
        (),
        "Further languages that wikis have pages in. A page is in the one its frontmatter or its small words say.",
        choices=LANGUAGES,
    ),
    Setting("anchors", str, "github", "Whose way of naming headings in links is followed.", choices=ANCHORS),
    Setting(
        "url",
        str,
        "{path}",
        "The link of a hit; {path} stands for the page, and the heading is added as a fragment.",
        check=url_fault,
    ),
    Setting(
        "vectors",
        str,
        "auto",
        "How nearest passages are found; auto is exact up to faiss.crossover passages. With a store in PostgreSQL, "
        "store asks the database each time, and so does auto in wikis without an HNSW index.",
        choices=("auto", "store", "exact", "faiss", "chroma"),
    ),
    Setting(
        "faiss.crossover",
        int,
        CROSSOVER,
        "From how many passages on auto uses FAISS, where it is installed.",
        minimum=0,
    ),
    Setting(
        "chroma.url",
        str,
        "",
        "With vectors = chroma: the address of a Chroma server, such as http://127.0.0.1:8000.",
        check=server_fault,
    ),
    Setting(
        "chroma.path",
        str,
        "",
        "With vectors = chroma, instead of a server: the directory of a Chroma in a child process; relative to data.",
        check=lambda place: place_fault(place) if place else "",
    ),
    Setting("chroma.tenant", str, "default_tenant", "The tenant of Chroma that holds the collections.", check=_named),
    Setting("chroma.database", str, "default_database", "The tenant's database that holds them.", check=_named),
    Setting(
        "chroma.layout",
        str,
        "id",
        "What a collection holds: id is vectors alone; seed is otterwiki_pages_SLUG with text and metadata.",
        choices=("id", "seed"),
    ),
    Setting(
        "chroma.timeout",
        float,
        2.0,
        "Seconds a search waits for Chroma before exact scores answer.",
        minimum=0.05,
        maximum=60,
    ),
    Setting("chroma.token", str, "", "A token that the server, or a proxy before it, asks for.", secret=True),
    Setting(
        "page.max_bytes",
        int,
        10 * 1024 * 1024,
        "Larger pages are listed as problems and not indexed.",
        minimum=1024,
        maximum=1024**3,
    ),
    Setting(
        "lock.timeout",
        float,
        30.0,
        "Seconds to wait for another process that is writing the same index.",
        minimum=0,
        maximum=86_400,
    ),
    Setting(
        "search.fresh_timeout",
        float,
        10.0,
        "Seconds a search with fresh=true waits for the index to reach HEAD.",
        minimum=0,
        maximum=600,
    ),
    Setting("serve.host", str, "127.0.0.1", "The address to listen on; another than this machine's own needs keys."),
    Setting("serve.port", int, 8765, "The port to listen on; 0 takes a free one.", minimum=0, maximum=65_535),
    Setting(
        "serve.domain",
        str,
        "",
        "With wiki.example here, the host SLUG.wiki.example is the wiki SLUG.",
        check=domain_fault,
    ),
    Setting("serve.hosts", tuple, (), "Further host names the service itself is reached by."),
    Setting(
        "serve.public", bool, False, "Whether wikis may be read without a key, unless their own setting says otherwise."
    ),
    Setting("serve.trusted_proxies", tuple, (), "Addresses of proxies whose word on a visitor's address is taken."),
    Setting("serve.cors_origins", tuple, (), "Origins of other web pages that may call the API from a browser."),
    Setting(
        "sync.interval", float, 60.0, "Seconds between two looks at a wiki's repository.", minimum=1, maximum=86_400
    ),
    Setting("sync.workers", int, 2, "Wikis that are synced at the same time.", minimum=1, maximum=64),
    Setting(
        "sync.slice",
        float,
        10.0,
        "Seconds after which a sync lets other wikis that wait go first.",
        minimum=0.1,
        maximum=3600,
    ),
    Setting(
        "discover.interval",
        float,
        10.0,
        "Seconds between two looks for new and removed repositories.",
        minimum=1,
        maximum=86_400,
    ),
    Setting("backup.place", str, "backups", "The directory backups are kept in; relative to data.", check=place_fault),
    Setting(
        "backup.interval",
        float,
        86_400.0,
        "Seconds between two backups of a wiki that has changed, while the service runs; 0 means none by schedule.",
        minimum=0,
        maximum=366 * 86_400,
    ),
    Setting(
        "backup.keep",
        int,
        7,
        "How many of the latest backups are kept; of as many days the newest is kept as well.",
        minimum=1,
        maximum=10_000,
    ),
    Setting(
        "check.interval",
        float,
        86_400.0,
        "Seconds between two checks of every byte of a wiki's index while the service runs; 0 means none.",
        minimum=0,
        maximum=31_536_000,
    ),
    Setting("remote.schemes", tuple, ("https", "ssh"), "What the URL of a remote repository may begin with."),
    Setting("remote.allow_private", bool, False, "Whether remotes may lie on this machine or in a private network."),
    Setting("remote.timeout", float, 300.0, "Seconds a clone or fetch may take.", minimum=1, maximum=86_400),
    Setting(
        "remote.max_bytes",
        int,
        2 * 1024**3,
        "How much one clone or fetch may bring, and so at most how large the first one may be.",
        minimum=1024,
    ),
    Setting("limit.key_per_minute", int, 1200, "Requests a minute with one key; 0 means no limit.", minimum=0),
    Setting("limit.address_per_minute", int, 600, "Requests a minute from one address; 0 means no limit.", minimum=0),
    Setting("limit.body_bytes", int, 16 * 1024 * 1024, "The largest body of a request.", minimum=1024, maximum=1024**3),
    Setting(
        "mcp.max_tokens",
        int,
        4000,
        "About how many tokens an answer to an agent has, unless it asks for more or fewer.",
        minimum=200,
        maximum=50_000,
    ),
    Setting("mcp.aliases", bool, False, "Whether agents may call tools by the names of otterwiki-mcp too."),
    Setting(
        "oauth.issuers", tuple, (), "Issuers whose access tokens open wikis to agents; none means that keys alone do."
    ),
    Setting(
        "oauth.resource",
        str,
        "",
        "Where this service is reached: https:// and a host. A token's audience is this and /w/SLUG/mcp.",
        check=resource_fault,
    ),
    Setting(
        "oauth.jwks",
        str,
        "",
        "The issuers' public keys as a JSON Web Key Set: a file, or an https:// address that is asked for them.",
        check=keys_fault,
    ),
    Setting(
        "queries.log",
        bool,
        False,
        "Whether searches are written down, each wiki's with its own index, unless its own setting says otherwise.",
    ),
    Setting(
        "queries.keep", float, 30.0, "Days after which what was searched for is forgotten.", minimum=0.01, maximum=3660
    ),
    Setting(
        "queries.most",
        int,
        50_000,
        "How many searches of a wiki are remembered; the newest are.",
        minimum=1,
        maximum=10_000_000,
    ),
    Setting("search.stale_check", bool, True, "Whether each answer says if the repository has moved on since."),
    Setting(
        "log.level",
        str,
        "warning",
        "How much is logged to standard error.",
        choices=("debug", "info", "warning", "error"),
    ),
)

WIKI_SETTINGS = (
    Setting("subdirectory", str, "", "The directory of the repository that holds the wiki; empty means the whole."),
    Setting(
        "ignore",
        tuple,
        (),
        "Files left out: patterns as in a .gitignore, separated by commas or on lines of their own.",
    ),
    Setting(
        "hide",
        tuple,
        (),
        "Pages that no search finds, by patterns as above; they can be read and listed, and their links count.",
    ),
    Setting("language", str, "", "The wiki's language; empty means the general setting.", choices=("", *LANGUAGES)),
    Setting(
        "languages",
        tuple,
        (),
        "Further languages the wiki has pages in; none means the general setting.",
        choices=LANGUAGES,
    ),
    Setting("anchors", str, "", "How headings are named in links; empty as above.", choices=("", *ANCHORS)),
    Setting(
        "url",
        str,
        "",
        "The link of a hit in this wiki; empty means the general setting.",
        check=lambda template: url_fault(template) if template else "",
    ),
    Setting(
        "public",
        str,
        "",
        "Whether the wiki may be read without a key; empty as serve.public says.",
        choices=("", "true", "false"),
    ),
    Setting(
        "log_queries",
        str,
        "",
        "Whether its searches are written down; empty as queries.log says.",
        choices=("", "true", "false"),
    ),
    Setting("hosts", tuple, (), "Host names that are this wiki, separated by commas."),
    Setting(
        "confined",
        str,
        "",
        "The directory its repository may take nothing from outside of; `serve` sets it for wikis that it finds.",
    ),
    Setting(
        "interval",
        float,
        0.0,
        "Seconds between two looks at its repository; 0 means the general setting.",
        minimum=0,
        maximum=86_400,
    ),
    Setting(
        "webhook_secret",
        str,
        "",
        "The secret a git host signs its push webhooks with; empty means none are taken.",
        secret=True,
    ),
)
