"""How many false sentences the check of citations notices, and how many faithful ones it strikes: docs/ask.md.

    python -m bench.claims [--show] [--write]

claims.tsv has sentences about pages of the example wikis and of the documentation, each faithful or with what is wrong with it.
Each sentence cites the passage of its page that has most of its words. The rules were chosen with the sentences about
`allotment`, and looked at with those about `runbook`; those about `docs` were written afterwards. The second table has sentences of the same pages with one random change.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from bench.report import make_head, make_parser, publish
from wikiholt.domain.page import Page
from wikiholt.interfaces.cli import demo_command
from wikiholt.models import load_embedder
from wikiholt.search.citations import QuotedPassages
from wikiholt.text.analysis import get_analyser
from wikiholt.text.chunks import build_chunks
from wikiholt.text.keyword_query import get_stop_terms
from wikiholt.text.page_parser import parse_page
from wikiholt.text.snippets import split_sentences

CLAIMS = Path(__file__).with_name("claims.tsv")
PAGES = Path(demo_command.__file__).with_name("demo_wikis")
DOCUMENTATION = Path(__file__).parents[1] / "docs"
FAITHFUL = "faithful"
MIN_WORDS = 5
SEED = 1


class Claim(NamedTuple):
    """A sentence about a page; `kind` is faithful or what was falsified."""

    page: str
    kind: str
    sentence: str

    @property
    def wiki(self) -> str:
        return self.page.partition("/")[0]


def read_claims() -> list[Claim]:
    return [Claim(*line.split("\t")) for line in CLAIMS.read_text("utf-8").splitlines()]


def find_fault(claim: Claim) -> str:
    """Why the claim is not supported by the passage of its page that has most of its words; empty if it is."""
    passages = read_passages(claim.page)
    words = get_words(claim.sentence)
    shared = [len(words & get_words(" ".join(passage))) for passage in passages]
    return QuotedPassages(passages, "english").find_fault(claim.sentence, [shared.index(max(shared)) + 1])


def get_words(text: str) -> frozenset[str]:
    return frozenset(get_analyser("english").to_terms(text)) - get_stop_terms("english")


@cache
def read_passages(path: str) -> list[list[str]]:
    """The sentences of the passages of a page; the first of each is the page with its headings."""
    file = (DOCUMENTATION.parent if path.startswith(DOCUMENTATION.name) else PAGES) / f"{path}.md"
    page = parse_page(file.name, "", file.read_bytes(), None)
    assert isinstance(page, Page)
    chunks = build_chunks(page, load_embedder().get_token_spans)
    return [[" › ".join((page.name, *chunk.heading_path)), *split_sentences(chunk.text)] for chunk in chunks]


def measure(*, show: bool) -> Iterator[str]:
    counts: Counter[tuple[str, str, bool]] = Counter()
    for claim in read_claims():
        fault = find_fault(claim)
        counts[claim.wiki, claim.kind, bool(fault)] += 1
        if show and bool(fault) == (claim.kind == FAITHFUL):
            yield f"{claim.kind}: {claim.sentence} ({fault})"
    kinds = [FAITHFUL, *sorted({kind for _, kind, _ in counts} - {FAITHFUL})]
    wikis = sorted({wiki for wiki, _, _ in counts})
    yield make_head(f"| sentences | {' | '.join(f'struck, {wiki}' for wiki in wikis)} |")
    for name, members in (*((kind, [kind]) for kind in kinds), ("all false ones", kinds[1:])):
        cells = []
        for wiki in wikis:
            struck, kept = (sum(counts[wiki, kind, is_struck] for kind in members) for is_struck in (True, False))
            cells.append(f"{struck} of {struck + kept}")
        yield f"| {name} | {' | '.join(cells)} |"


def falsify(words: Sequence[str], others: Sequence[str], choice: random.Random) -> Iterator[tuple[str, str]]:
    """The sentence with another number, negation or name, and with words of another page added."""
    for place, word in enumerate(words):
        changed = list(words)
        if re.fullmatch(r"\d+", word):
            changed[place] = str(int(word) + choice.randint(1, 9))
            yield "number", " ".join(changed)
        elif word in ("not", "never", "no"):
            yield "negation left out", " ".join(changed[:place] + changed[place + 1 :])
        elif word in ("is", "are", "may", "can", "must", "has", "have") and "not" not in words:
            yield "negation added", " ".join([*changed[: place + 1], "not", *changed[place + 1 :]])
        elif place and word.isalpha() and word.istitle():
            changed[place] = choice.choice(
                [name for name in others if name.istitle() and name.isalpha() and name.lower() not in others]
            )
            yield "name", " ".join(changed)
    start = choice.randrange(len(others) - 5)
    yield "addition", " ".join([*words[:-1], words[-1].rstrip("."), "and", *others[start : start + 5]])


def measure_generated() -> Iterator[str]:
    """Every sentence of the pages, as it is and with one change of each kind."""
    choice, counts = random.Random(SEED), Counter[tuple[str, bool]]()
    pages = sorted({claim.page for claim in read_claims()})
    for page in pages:
        passages = read_passages(page)
        quoted = QuotedPassages(passages, "english")
        other = choice.choice([each for each in pages if each.partition("/")[0] != page.partition("/")[0]])
        others = " ".join(chain.from_iterable(read_passages(other))).split()
        for number, passage in enumerate(passages, 1):
            for sentence in passage[1:]:
                if sentence.endswith(".") and len(words := sentence.split()) >= MIN_WORDS:
                    changed = dict(falsify(words, others, choice))
                    for kind, text in {"unchanged": sentence, **changed}.items():
                        counts[kind, bool(quoted.find_fault(text, [number]))] += 1
    yield make_head("| sentences of the pages | struck |")
    for kind in sorted({kind for kind, _ in counts}, reverse=True):
        yield f"| {kind} | {counts[kind, True]} of {counts[kind, True] + counts[kind, False]} |"


def main() -> None:
    parser = make_parser(__doc__, "claims")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    lines = [*measure(show=arguments.show), "", *measure_generated()]
    publish("claims", __doc__, lines, write=arguments.write)


if __name__ == "__main__":
    main()
