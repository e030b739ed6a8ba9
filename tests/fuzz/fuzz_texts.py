"""Random texts for fuzzing: words, syntax characters of several formats and unusual characters, combined."""

from hypothesis import strategies as st

from tests.support.hostile_text import HOSTILE_PIECES

PATHS = ("Home", "guides/Back up", "guides/restore", "Guides/Restore", "a_b", "a-b", "x.markdown", "deep/er/page", "é")
"""Pages of a wiki that links may point to."""

_character = st.characters(exclude_categories=())
_short = st.text(_character, max_size=12)
_path = st.sampled_from(PATHS) | st.text("ab ./#?%_-()<>é\\|", max_size=10)
_link = st.one_of(
    st.builds("[{}]({})".format, _short, _path),
    st.builds("[{}](<{}>)".format, _short, _path),
    st.builds("[[{}]]".format, _path),
    st.builds("[[{}|{}]]".format, _path, _path),
    st.builds("[{}]: {}\n".format, st.text("ab", min_size=1, max_size=2), _path),
    st.builds("[{}][{}]".format, _short, st.text("ab", max_size=2)),
    st.builds("![{}]({} '{}')".format, _short, _path, _short),
)
_piece = st.one_of(
    st.sampled_from(HOSTILE_PIECES), _short, _link, st.sampled_from(["\n", "\n\n", " ", "word ", "Sentence. "])
)
texts = st.lists(
    st.builds(lambda piece, times: piece * times, _piece, st.sampled_from([1, 1, 1, 2, 3, 17])), max_size=30
).map("".join)
"""Text of any kind, often similar to Markdown, YAML, HTML or a query; also lone surrogates."""

links = st.lists(st.one_of(_link, st.sampled_from([" ", "\n", "\n\n- ", "`", "> ", "text "])), max_size=12).map("".join)
"""Markdown that is mostly links."""

data = st.binary(max_size=300) | texts.map(lambda text: text.encode("utf-8", "surrogatepass"))
"""Bytes of a page."""

_scalar = st.one_of(
    _short, st.sampled_from(["2024", "null", "~", "yes", "1.10", "2024-01-01", "*a", "&a x", "!!binary x", "'", '"'])
)
_value = st.recursive(
    _scalar,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(inner, max_size=3).map(
            lambda items: "{" + ", ".join(f"k{n}: {item}" for n, item in enumerate(items)) + "}"
        ),
        st.lists(inner, max_size=3).map(lambda items: "".join(f"\n  - {item}" for item in items)),
    ),
    max_leaves=8,
)
_key = st.sampled_from(
    ["title", "tags", "Tag", "category", "date", "last_updated", "search", "hidden", "lang", "x", "<<"]
)
matter = st.builds(
    lambda fence, fields, end, body: f"{fence}\n" + "\n".join(fields) + f"\n{end}\n{body}",
    st.sampled_from(["---", "+++", "--- "]),
    st.lists(
        st.builds("{}: {}".format, _key, _value) | st.builds('{} = "{}"'.format, _key, _short) | texts, max_size=6
    ),
    st.sampled_from(["---", "+++", "...", ""]),
    texts,
)
"""Pages that start with something similar to frontmatter."""
