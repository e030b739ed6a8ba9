"""The analyser and keyword queries: the same terms from every text and every store."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.text.markdown_samples import MALFORMED_TEXTS, parse_text
from wikiholt.domain.search import KeywordQuery
from wikiholt.text.bm25 import build_page_terms, to_terms
from wikiholt.text.keyword_query import find_exclusions, find_plain_words, parse_query, to_plain_query


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Running runs RUN", ["run", "run", "run"]),
        ("Café CAFE\u0301 cafe", ["cafe", "cafe", "cafe"]),
        ("kubectl_apply", ["kubectl", "appli", "kubectl_apply"]),
        ("--no-rerank", ["no", "rerank", "no-rerank"]),
        ("camelCase", ["camel", "case", "camelcas"]),
        ("HTTPServer", ["http", "server", "httpserver"]),
        ("v1.2.3.", ["v1", "2", "3", "v1.2.3"]),
        ("foo.bar,", ["foo", "bar", "foo.bar"]),
        ("__init__", ["init"]),
        ("user's", ["user"]),
        ("l’eau", ["l", "eau"]),
        ("C++ and C#", ["c++", "and", "c#"]),
        ("東京都", ["東京", "京都"]),
        ("猫 です", ["猫", "です"]),
        ("한국어", ["한국", "국어"]),
        ("GPU東京", ["gpu", "東京"]),
        ("ＦＵＬＬ ﬁne ①", ["full", "fine", "1"]),
        ("Straße STRASSE", ["strass", "strass"]),
        ("हिन्दी", ["हिनदी"]),
        ("a/b|c", ["a", "b", "c"]),
        ("!!! ... --- ___", []),
        ("", []),
    ],
)
def test_terms(text: str, found: list[str]) -> None:
    assert to_terms(text) == found


@given(st.text(max_size=200))
def test_terms_hold_no_whitespace_and_are_stable(text: str) -> None:
    found = to_terms(text)
    assert all(term and not any(char.isspace() for char in term) and len(term) <= 64 for term in found)
    assert found == to_terms(text)
    " ".join(found).encode("utf-8")


@given(st.text(max_size=100), st.sampled_from(["english", "german", "russian", "klingon", ""]))
def test_any_language_and_query_is_accepted(text: str, language: str) -> None:
    query = parse_query(text, language)
    assert bool(query) is bool(query.terms or query.phrases or query.prefix)
    assert all(query.phrases)
    assert all(query.excluded)


@given(st.text(st.sampled_from("""ab"“”- +*()^:\\'\t"""), max_size=30))
def test_marks_of_a_query_never_break_it(text: str) -> None:
    query = parse_query(text)
    assert not query.prefix or not text[-1].isspace()


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("running", KeywordQuery(("run",), prefix="running")),
        ("kuber", KeywordQuery(("kuber",), prefix="kuber")),
        ("running ", KeywordQuery(("run",))),
        ("how to install kube", KeywordQuery(("instal", "kube"), prefix="kube")),
        ("what is this", KeywordQuery(("what", "is", "this"), prefix="this")),
        ("install the", KeywordQuery(("instal",))),
        ("x", KeywordQuery(("x",))),
        ('"exact phrase"', KeywordQuery((), (("exact", "phrase"),))),
        ('"the who"', KeywordQuery((), (("the", "who"),))),
        ("“smart quotes” x ", KeywordQuery(("x",), (("smart", "quot"),))),
        ('cats -dogs -"wild birds"', KeywordQuery(("cat",), (), (("wild", "bird"), ("dog",)))),
        ("cats -dogs", KeywordQuery(("cat",), (), (("dog",),))),
        ("-only", KeywordQuery((), (), (("onli",),))),
        ("ls -l ", KeywordQuery(("ls", "l"))),
        ("--no-rerank ", KeywordQuery(("rerank", "no-rerank"))),
        ("well-known ", KeywordQuery(("well", "known", "well-known"))),
        ('say "unclosed', KeywordQuery(("say", "unclos"), prefix="unclosed")),
        ("run RUN running ", KeywordQuery(("run",))),
        ("東京", KeywordQuery(("東京",), prefix="東京")),
        ("猫", KeywordQuery(("猫",), prefix="猫")),
        ("Café", KeywordQuery(("cafe",), prefix="cafe")),
        ('""', KeywordQuery()),
        ("- -- \" ' * ()", KeywordQuery()),
        ("", KeywordQuery()),
    ],
)
def test_queries(text: str, query: KeywordQuery) -> None:
    assert parse_query(text) == query


def test_every_prefix_of_a_word_matches_while_typed() -> None:
    words = build_page_terms(parse_text("The universities are running kubernetes."))
    held = words.body.split()
    for typed in ("univer", "universi", "universit", "universities", "run", "runni", "kuber", "kubernetes"):
        query = parse_query(typed)
        assert set(query.terms) & set(held) or any(term.startswith(query.prefix) for term in held), typed


def test_the_fields_of_a_page() -> None:
    page = parse_text(
        "---\ntags: [alpha]\ndesc: Purpose\n---\n# Big Title\n\nSee [text](http://noise.example/x) `code_here`.\n",
        "guides/set_up.md",
    )
    words = build_page_terms(page)
    assert {"big", "titl", "guid", "set", "alpha"} <= set(words.name.split())
    assert words.headings.split()[:2] == ["big", "titl"]
    assert {"purpos", "text", "code", "code_here"} <= set(words.body.split())
    assert "noise" not in words.body


def test_phrases_match_in_the_body_in_order() -> None:
    body = build_page_terms(parse_text("The quick brown foxes jump over_there.")).body
    (phrase,) = parse_query('"brown fox jumps"').phrases
    assert f" {' '.join(phrase)} " in f" {body} "


@pytest.mark.parametrize("name", MALFORMED_TEXTS)
def test_malformed_texts_are_analysed(name: str) -> None:
    words = build_page_terms(parse_text(MALFORMED_TEXTS[name]))
    assert all(len(term) <= 64 for term in words.body.split())


def test_many_threads_find_the_same_terms() -> None:
    text = " ".join(f"running{n} jumped{n}ing words{n} tested{n}" for n in range(2_000))
    expected = to_terms(text, "porter")
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(to_terms(text, "english"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6
    assert all(found == results[0] for found in results)
    assert len(expected) == len(results[0])


@pytest.mark.parametrize(
    "query",
    [
        "badblocks -wsv",
        "ls -la",
        "/bin/ls -lah",
        "what does rm -rf do",
        "sudo apt-get install -qq nginx",
        "git rebase -i",
        "git push -force",
        "kubectl get pods -n prod",
        "find . -type f -name pages",
        "kill -HUP",
        "sort -k2 -nr",
        "search --rerank",
        "run -i -j4 -v2",
        "it is -10 degrees",
    ],
)
def test_the_option_of_a_command_excludes_nothing(query: str) -> None:
    assert find_exclusions(query) == []
    assert parse_query(query).excluded == ()
    assert to_plain_query(query) == query
    options = [word.lstrip("-") for word in query.split() if word.startswith("-")]
    assert {query[start:end] for start, end in find_plain_words(query)} >= set(options)


@pytest.mark.parametrize(
    ("query", "typed"),
    [
        ("drum -printer", ["-printer"]),
        ("frobnicate -wsv", ["-wsv"]),
        ("vpn -SSH -k8s -2023", ["-SSH", "-k8s", "-2023"]),
        ("how to make tea -coffee", ["-coffee"]),
        ("printer make -model", ["-model"]),
        ('ls -"steam button"', ['-"steam button"']),
        ('"ls" colours -printer', ["-printer"]),
        ('find "this phrase" -printer', ["-printer"]),
        ("猫 -犬", ["-犬"]),
        ("-printer", ["-printer"]),
    ],
)
def test_any_other_hyphen_before_a_word_excludes_it(query: str, typed: list[str]) -> None:
    assert find_exclusions(query) == typed
    assert len(parse_query(query).excluded) == len(typed)
    assert not any(text in to_plain_query(query) for text in typed) or query == typed[0]
