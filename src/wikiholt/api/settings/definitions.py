"""Every setting, declared once: `Settings` for the installation, `WikiSettings` for one wiki.

A field is the setting: its type, default, description and limits. The settings file, the environment, `--set`, the
`set` command and docs/settings.md follow from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from wikiholt.api.settings.setting import (
    allow_empty,
    build_unknown_error,
    check_api_url,
    check_boost_rule,
    check_chroma_name,
    check_directory,
    check_domain,
    check_edit_url,
    check_file_kind,
    check_header_name,
    check_jwks_location,
    check_language_model,
    check_provider_url,
    check_resource_url,
    check_server_url,
    check_store_address,
    check_url_template,
    list_settings,
    setting,
)
from wikiholt.domain.wiki import MANAGED_KIND
from wikiholt.search.request import MAX_CHUNKS_PER_PAGE
from wikiholt.text.dialect import AUTO, DIALECTS
from wikiholt.text.language_names import LANGUAGES, find_language
from wikiholt.text.synonym_rules import check_synonym_rule
from wikiholt.wikis.people import check_group_rule

ANCHOR_STYLES = ("github", "otterwiki")
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of an installation. The first underscore of a field is a dot in its name: `chunk.target_tokens`."""

    data: Path = setting(  # noqa: RUF009 - it returns a dataclass field
        Path(),
        "The directory of the indexes and the registry; relative to the working directory of the command. By default "
        "`wikiholt-data` in that directory or the nearest one above it that has one, else `wikiholt` in the user's "
        "data directory (`$XDG_DATA_HOME`).",
    )
    store: str = setting(
        "",
        "Where indexes, registry and keys are stored: empty means files in data; postgresql://… means a database "
        "that several nodes can share. Caches, mirrors and backups stay in data.",
        check=check_store_address,
        secret=True,
    )
    postgres_lease: float = setting(
        15.0,
        "Seconds without a heartbeat after which another node takes over the work of a node.",
        minimum=0.5,
        maximum=3600,
    )
    postgres_connections: int = setting(
        32, "Maximum number of open database connections of this process, for all wikis.", minimum=1, maximum=10_000
    )
    postgres_registry_age: float = setting(
        5.0,
        "Seconds for which a node may answer from its copy of registry and keys while it cannot reach the home "
        "database, and so the longest time for which a revoked key may still work. 0: ask for each request.",
        minimum=0,
        maximum=300,
    )
    model: str = setting(
        "wikiholt-1",
        "The embedding model: a known name, the directory of an ONNX model, a fetched one (hf:org/name), "
        "or openai:NAME for a model on a server. The default is all-MiniLM-L6-v2 if chroma.layout is seed.",
    )
    precision: str = setting(
        "",
        "The precision of the model's weights; empty means the model's own default. The choices depend on the model.",
    )
    device: str = setting(
        "auto",
        "Where a built-in model embeds pages; cuda needs the extra gpu. auto uses a GPU if there is one and PyTorch.",
        choices=("auto", "cpu", "cuda"),
    )
    embedding_url: str = setting(
        "",
        "With model = openai:NAME: the address before /embeddings, such as http://127.0.0.1:11434/v1.",
        check=check_api_url,
    )
    embedding_key_variable: str = setting(
        "", "The environment variable that contains the key of the embedding server; empty means no key."
    )
    embedding_timeout: float = setting(
        30.0, "Seconds a request of the indexer waits for the embedding server.", minimum=0.1, maximum=3600
    )
    embedding_query_timeout: float = setting(
        5.0, "Seconds a search waits for the embedding server.", minimum=0.05, maximum=60
    )
    embedding_batch: int = setting(
        32,
        "Texts per request to the embedding server; one is a known text that checks the model.",
        minimum=2,
        maximum=2048,
    )
    embedding_max_tokens: int = setting(
        512, "Maximum number of tokens that the model on the server reads of a text.", minimum=16, maximum=131_072
    )
    embedding_query_prefix: str = setting("", "Text before every query, if the model on the server needs one.")
    embedding_passage_prefix: str = setting("", "Text before every passage, if the model on the server needs one.")
    embedding_local_model: str = setting(
        "",
        "The same model on this machine: it counts tokens, and embeds queries while the server does not answer.",
    )
    threads: int = setting(0, "Threads the model may use; 0 means one per core.", minimum=0, maximum=1024)
    rerank_model: str = setting(
        "auto",
        "The reranker, which scores the best pages of a search again: a known name, the directory of an ONNX "
        "cross-encoder, or openai:NAME for a model on a server. auto means wikiholt-rerank-1 beside wikiholt-1, for "
        "English questions on the command line and of agents; empty means none.",
    )
    rerank_budget: int = setting(
        500,
        "Milliseconds the reranker has per search. If they are not enough, the search returns the order without it.",
        minimum=1,
        maximum=60_000,
    )
    rerank_url: str = setting(
        "",
        "With rerank.model = openai:NAME: the address before /rerank, such as http://127.0.0.1:8080/v1. It gets the "
        "query and the best passages.",
        check=check_api_url,
    )
    rerank_key_variable: str = setting(
        "", "The environment variable that contains the key of the rerank server; empty means no key."
    )
    ask_model: str = setting(
        "",
        "The language model that answers questions from passages of the wiki: openai:NAME, on the server of ask.url; "
        "empty means none.",
        check=check_language_model,
    )
    ask_url: str = setting(
        "",
        "The address before /chat/completions of an OpenAI-compatible server, such as http://127.0.0.1:11434/v1. It "
        "gets each question with up to six passages.",
        check=check_api_url,
    )
    ask_key_variable: str = setting(
        "", "The environment variable that contains the key of the language model server; empty means no key."
    )
    ask_timeout: float = setting(60.0, "Seconds the language model may take for an answer.", minimum=0.1, maximum=3600)
    ask_every_wiki: bool = setting(
        True, "Whether the language model gets passages of a wiki whose own setting ask_model is empty."
    )
    chunk_target_tokens: int = setting(200, "Target size of a chunk in tokens.", minimum=20, maximum=8192)
    chunk_overlap_tokens: int = setting(
        50, "Tokens shared by neighbouring chunks; less than chunk.target_tokens.", minimum=0, maximum=4096
    )
    language: str = setting(
        AUTO,
        "The main language of the pages, for stemming; auto detects the languages of each wiki.",
        choices=(AUTO, *LANGUAGES),
        find_choice=find_language,
    )
    languages: tuple[str, ...] = setting(
        (),
        "Further languages of the pages. The language of a page is the one in its frontmatter, or is detected by its "
        "stopwords.",
        choices=LANGUAGES,
        find_choice=find_language,
    )
    anchors: str = setting("github", "The style of heading anchors in links.", choices=ANCHOR_STYLES)
    url: str = setting(
        "{path}",
        "The link of a hit. {path} is replaced by the page's path, and the heading is added as a fragment.",
        check=check_url_template,
    )
    vectors: str = setting(
        "auto",
        "The vector search engine; auto is exact up to faiss.crossover chunks. With a store in PostgreSQL, store "
        "queries the database for each search, and so do the others for small wikis.",
        choices=("auto", "store", "exact", "faiss", "chroma"),
    )
    faiss_crossover: int = setting(
        600_000, "Number of chunks from which auto uses FAISS, if it is installed.", minimum=0
    )
    chroma_url: str = setting(
        "",
        "With vectors = chroma: the URL of a Chroma server, such as http://127.0.0.1:8000.",
        check=check_server_url,
    )
    chroma_path: str = setting(
        "",
        "With vectors = chroma, instead of a server: the directory of a Chroma that runs as a child process; relative "
        "to data.",
        check=allow_empty(check_directory),
    )
    chroma_tenant: str = setting("default_tenant", "The Chroma tenant of the collections.", check=check_chroma_name)
    chroma_database: str = setting(
        "default_database", "The Chroma database of the collections.", check=check_chroma_name
    )
    chroma_layout: str = setting(
        "id",
        "The content of a collection: id stores vectors only; seed is otterwiki_pages_SLUG with text and metadata.",
        choices=("id", "seed"),
    )
    chroma_timeout: float = setting(
        2.0, "Seconds a search waits for Chroma before it uses exact scores.", minimum=0.05, maximum=60
    )
    chroma_token: str = setting("", "The token that the Chroma server, or a proxy before it, requires.", secret=True)
    page_max_bytes: int = setting(
        10 * 1024**2, "Larger pages are reported as problems and not indexed.", minimum=1024, maximum=1024**3
    )
    lock_timeout: float = setting(
        30.0, "Seconds to wait for another process that writes the same index.", minimum=0, maximum=_DAY_S
    )
    search_fresh_timeout: float = setting(
        10.0, "Seconds a search with fresh=true waits for the index to reach HEAD.", minimum=0, maximum=600
    )
    search_semantic_chunks_per_page: int = setting(
        1,
        "Chunks of one page that /api/v1/semantic-search returns at most, unless the client sets "
        "max_chunks_per_page. With 2, as in otterwiki-semantic-search, a page may appear twice.",
        minimum=1,
        maximum=MAX_CHUNKS_PER_PAGE,
    )
    serve_host: str = setting(
        "127.0.0.1", "The address to listen on. An address that other machines can reach requires keys."
    )
    serve_port: int = setting(8765, "The port to listen on; 0 chooses a free one.", minimum=0, maximum=65_535)
    serve_workers: int = setting(
        1,
        "Processes that answer requests. Each has the model in memory; with more than one, another process syncs.",
        minimum=1,
        maximum=256,
    )
    serve_domain: str = setting(
        "", "With wiki.example, the host SLUG.wiki.example serves the wiki SLUG.", check=check_domain
    )
    serve_hosts: tuple[str, ...] = setting((), "Further host names of the service itself.")
    serve_public: bool = setting(
        False, "Whether wikis can be read without a key, unless a wiki's own setting says otherwise."
    )
    serve_owner: bool = setting(
        True,
        "Whether `wikiholt open` gives the user that runs the service all rights in a browser on this machine.",
    )
    serve_trusted_proxies: tuple[str, ...] = setting(
        (), "Addresses of proxies whose X-Forwarded-For header is trusted."
    )
    serve_cors_origins: tuple[str, ...] = setting(
        (), "Origins of other web pages that may call the API from a browser (CORS)."
    )
    sync_interval: float = setting(
        60.0, "Seconds between two checks of a wiki's repository.", minimum=1, maximum=_DAY_S
    )
    sync_workers: int = setting(2, "Number of wikis that are synced at the same time.", minimum=1, maximum=64)
    sync_slice: float = setting(
        10.0, "Seconds after which a sync pauses if other wikis are waiting.", minimum=0.1, maximum=3600
    )
    discover_interval: float = setting(
        10.0, "Seconds between two scans for new and removed repositories.", minimum=1, maximum=_DAY_S
    )
    repositories_directory: str = setting(
        "",
        "The directory of the repositories of wikis that `create` makes; relative to data, by default `repositories`. "
        "With PostgreSQL it must be set, and be on storage that all nodes share.",
        check=allow_empty(check_directory),
    )
    backup_directory: str = setting("backups", "The directory of the backups; relative to data.", check=check_directory)
    backup_interval: float = setting(
        float(_DAY_S),
        "Seconds between two backups of the pages of wikis that `create` made while the service runs; the registry is "
        "backed up within minutes of a change. 0 disables scheduled backups.",
        minimum=0,
        maximum=366 * _DAY_S,
    )
    backup_keep: int = setting(
        7,
        "Number of recent backups of the registry to keep. The newest of each of as many days is kept too.",
        minimum=1,
        maximum=10_000,
    )
    check_interval: float = setting(
        float(_DAY_S),
        "Seconds between two full integrity checks of a wiki's index while the service runs; 0 disables them.",
        minimum=0,
        maximum=365 * _DAY_S,
    )
    remote_schemes: tuple[str, ...] = setting(("https", "ssh"), "Allowed URL schemes of remote repositories.")
    remote_allow_private: bool = setting(
        False, "Whether remote repositories may be on this machine or in a private network."
    )
    remote_timeout: float = setting(300.0, "Seconds a clone or fetch may take.", minimum=1, maximum=_DAY_S)
    remote_max_bytes: int = setting(
        2 * 1024**3,
        "Maximum bytes transferred by one clone or fetch. It also limits the size of the first clone.",
        minimum=1024,
    )
    limit_key_per_minute: int = setting(1200, "Requests per minute with one key; 0 means no limit.", minimum=0)
    limit_address_per_minute: int = setting(600, "Requests per minute from one address; 0 means no limit.", minimum=0)
    limit_waiting_requests: int = setting(
        128,
        "Requests that may wait in one process. Further ones are answered with 503 at once.",
        minimum=1,
        maximum=100_000,
    )
    limit_body_bytes: int = setting(16 * 1024**2, "Maximum size of a request body.", minimum=1024, maximum=1024**3)
    mcp_max_tokens: int = setting(
        4000,
        "Approximate length of a tool result in tokens, unless the call sets max_tokens.",
        minimum=300,
        maximum=50_000,
    )
    mcp_aliases: bool = setting(False, "Whether the tools are also available by their otterwiki-mcp names.")
    mcp_oauth: bool = setting(
        False,
        "Whether agents can get tokens here with OAuth 2.1: a person approves them with a key. Needs oauth.resource.",
    )
    oauth_issuers: tuple[str, ...] = setting(
        (), "Issuers whose access tokens give agents access to wikis; empty means that only keys do."
    )
    oauth_resource: str = setting(
        "",
        "The public URL of this service: https:// and a host. The audience of a token is this URL and /w/SLUG/mcp.",
        check=check_resource_url,
    )
    oauth_jwks: str = setting(
        "",
        "The issuers' public keys as a JSON Web Key Set: a file, or an https:// URL.",
        check=check_jwks_location,
    )
    people_groups: tuple[str, ...] = setting(
        (),
        "What the groups of people may do: editors=handbook:write, staff=*:read for all wikis, *=handbook:read for "
        "every person, admins=operator.",
        check=check_group_rule,
    )
    people_remember_days: float = setting(
        0.0,
        "Days that a browser stays signed in with a key if its user chooses so; 0 disables it.",
        minimum=0,
        maximum=400,
    )
    people_sign_in_hours: float = setting(
        12.0,
        "Hours after which a person who signed in with OpenID Connect must sign in again; also the longest sign-in "
        "with a key that is not remembered.",
        minimum=0.1,
        maximum=9600,
    )
    people_proxy_user_header: str = setting(
        "",
        "The header in which a proxy of serve.trusted_proxies names the person, such as Remote-User; empty means none.",
        check=check_header_name,
    )
    people_proxy_groups_header: str = setting(
        "", "The header with the groups of the person, separated by commas.", check=check_header_name
    )
    people_proxy_email_header: str = setting(
        "", "The header with the address of the person, for commits.", check=check_header_name
    )
    people_proxy_sign_out_url: str = setting(
        "", "The address at which the proxy signs people out.", check=check_provider_url
    )
    people_oidc_issuer: str = setting(
        "",
        "The issuer of an OpenID provider with which people sign in; empty means none. Needs the extra oidc.",
        check=check_provider_url,
    )
    people_oidc_name: str = setting("your account", "The name of the OpenID provider on the sign-in page.")
    people_oidc_client_id: str = setting("", "The id of this service at the OpenID provider.")
    people_oidc_client_secret: str = setting(
        "", "The secret of this service at the OpenID provider; empty for a public client.", secret=True
    )
    people_oidc_scopes: tuple[str, ...] = setting(
        ("openid", "profile", "email"), "The scopes to request; some providers need groups too."
    )
    people_oidc_groups_claim: str = setting("groups", "The claim that contains the groups of a person.")
    queries_log: bool = setting(
        False, "Whether searches are logged, with each wiki's index, unless the wiki's own setting says otherwise."
    )
    queries_keep_days: float = setting(30.0, "Days after which a logged search is deleted.", minimum=0.01, maximum=3660)
    queries_max_entries: int = setting(
        50_000,
        "Maximum number of logged searches per wiki. The oldest are deleted first.",
        minimum=1,
        maximum=10_000_000,
    )
    past_views: int = setting(
        5,
        "Past commits of a wiki that have an index, for `search --at`; the longest unused is deleted first. 0 turns "
        "searching the past off.",
        minimum=0,
        maximum=1000,
    )
    past_max_bytes: int = setting(
        2 * 1024**3,
        "Maximum bytes of these indexes of one wiki; the one searched last always stays.",
        minimum=0,
    )
    search_keep_warm: int = setting(
        10,
        "Minutes that a process in the background keeps model and indexes in memory after the last search of a command"
        " or an agent; it also embeds the pages of a first search. 0 turns it off.",
        minimum=0,
        maximum=1440,
    )
    search_stale_check: bool = setting(
        True, "Whether each search result says if the repository has newer commits than the index."
    )
    log_level: str = setting(
        "warning", "The log level on standard error.", choices=("debug", "info", "warning", "error")
    )


@dataclass(frozen=True, slots=True)
class WikiSettings:
    """The settings of one wiki. An empty value means the general setting."""

    subdirectory: str = setting(
        "", "The directory of the repository that contains the wiki; empty means the entire repository."
    )
    description: str = setting(
        "",
        "What the wiki is about, for the start page and for agents; if empty, agents see its folders and tags.",
    )
    ignore: tuple[str, ...] = setting((), "Files to ignore: .gitignore patterns, separated by commas or line breaks.")
    files: tuple[str, ...] = setting(
        ("docs",),
        "Documents that are pages: docs means all except html, code and pictures; none; or some of pdf, docx, pptx,"
        " xlsx, odt, ods, odp, epub, html, code and pictures.",
        check=check_file_kind,
    )
    hide: tuple[str, ...] = setting(
        (),
        "Pages to exclude from search, by the same patterns. They can be read and listed, and their links count.",
    )
    boost: tuple[str, ...] = setting(
        (),
        "Factors from 0.1 to 10 that move pages up or down in the results, by pattern: /runbooks=2, /archive=0.5. Of "
        "several patterns that match a page, the last one counts.",
        check=check_boost_rule,
    )
    synonyms: tuple[str, ...] = setting(
        (),
        "Words and phrases that find each other: PTO = vacation = annual leave; in one direction: k8s > kubernetes.",
        check=check_synonym_rule,
    )
    language: str = setting(
        "",
        "The main language of the pages; empty means the general setting.",
        choices=("", AUTO, *LANGUAGES),
        find_choice=find_language,
    )
    languages: tuple[str, ...] = setting(
        (),
        "Further languages of the pages; empty means the general setting.",
        choices=LANGUAGES,
        find_choice=find_language,
    )
    anchors: str = setting(
        "", "The style of heading anchors in links; empty means the general setting.", choices=("", *ANCHOR_STYLES)
    )
    dialect: str = setting(
        AUTO,
        "The dialect of the pages, which decides how links, tags and boxes are written; auto detects it.",
        choices=(AUTO, *DIALECTS),
    )
    url: str = setting(
        "", "The link of a hit in this wiki; empty means the general setting.", check=allow_empty(check_url_template)
    )
    edit_url: str = setting(
        "",
        "The address at which a page can be edited, such as https://wiki.example.org/edit/main/{file}; {path} is "
        "the path of the page. Empty means no link.",
        check=check_edit_url,
    )
    public: str = setting(
        "",
        "Whether the wiki can be read without a key; empty means serve.public.",
        choices=("", "true", "false"),
    )
    log_queries: str = setting(
        "", "Whether its searches are logged; empty means queries.log.", choices=("", "true", "false")
    )
    ask_model: str = setting(
        "",
        "Whether the language model of the service gets its passages; empty means ask.every_wiki.",
        choices=("", "true", "false"),
    )
    hosts: tuple[str, ...] = setting((), "Host names of this wiki, separated by commas.")
    confined: str = setting(
        "",
        "The directory outside of which the repository may read nothing. `serve` sets it for wikis that it discovers.",
    )
    interval: float = setting(
        0.0,
        "Seconds between two checks of its repository; 0 means the general setting.",
        minimum=0,
        maximum=_DAY_S,
    )
    webhook_secret: str = setting(
        "", "The secret that the git host signs push webhooks with; empty rejects webhooks.", secret=True
    )
    kind: str = setting(
        "",
        "What its source is: a git repository (empty or git), a directory of files (directory), or a repository that "
        "Wikiholt keeps (managed). `add` and `create` set it.",
        choices=("", "git", "directory", MANAGED_KIND),
    )

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> Self:
        """Parse values from the registry or the command line. Raises InvalidSetting."""
        fields: dict[str, Any] = {}
        for name, text in values.items():
            if name not in WIKI_SETTINGS:
                raise build_unknown_error(name, "setting of a wiki", WIKI_SETTINGS)
            fields[name] = WIKI_SETTINGS[name].parse(text, "setting of a wiki")
        return cls(**fields)


SETTINGS = list_settings(Settings, dotted=True)
"""The general settings by name."""
WIKI_SETTINGS = list_settings(WikiSettings, dotted=False)
"""The settings of one wiki by name."""
