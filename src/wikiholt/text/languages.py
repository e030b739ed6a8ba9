"""Which language a page is in: as it says itself, or as its small words say."""

import re
from collections.abc import Sequence

from wikiholt.model import Page
from wikiholt.text.analysis import TOKEN_PATTERN, normalize_term, split_languages
from wikiholt.text.smallwords import get_stopwords

LANGUAGES = (
    *("arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english", "esperanto", "estonian"),
    *("finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian"),
    *("nepali", "norwegian", "persian", "polish", "portuguese", "romanian", "russian", "serbian", "spanish"),
    *("swedish", "tamil", "turkish", "yiddish"),
)
"""The languages whose words have stems here."""

_LANGUAGE_CODES = {
    "arabic": "ar ara العربية",
    "armenian": "hy hye arm հայերեն",
    "basque": "eu eus baq euskara",
    "catalan": "ca cat català",
    "czech": "cs ces cze čeština",
    "danish": "da dan dansk",
    "dutch": "nl nld dut nederlands",
    "english": "en eng",
    "esperanto": "eo epo",
    "estonian": "et est eesti",
    "finnish": "fi fin suomi",
    "french": "fr fra fre français",
    "german": "de deu ger deutsch",
    "greek": "el ell gre ελληνικά",
    "hindi": "hi hin हिन्दी",
    "hungarian": "hu hun magyar",
    "indonesian": "id ind",
    "irish": "ga gle gaeilge",
    "italian": "it ita italiano",
    "lithuanian": "lt lit lietuvių",
    "nepali": "ne nep नेपाली",
    "norwegian": "no nb nn nor nob nno norsk bokmål nynorsk",
    "persian": "fa fas per farsi فارسی",
    "polish": "pl pol polski",
    "portuguese": "pt por português",
    "romanian": "ro ron rum română",
    "russian": "ru rus русский",
    "serbian": "sr srp српски srpski",
    "spanish": "es spa español castellano",
    "swedish": "sv swe svenska",
    "tamil": "ta tam தமிழ்",
    "turkish": "tr tur türkçe",
    "yiddish": "yi yid ייִדיש",
}
_LANGUAGE_BY_NAME = {code.casefold(): name for name, codes in _LANGUAGE_CODES.items() for code in (name, *codes.split())}
_CODE_BLOCK = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)|`[^`\n]*+`", re.MULTILINE | re.DOTALL)
_MAX_SAMPLE_CHARS = 20_000
"""Characters of a page by which its language is judged."""
_MIN_STOPWORDS = 4
"""Small words of a language that a page must have before they say anything."""


def find_language(text: str) -> str | None:
    """The language meant by a code or a name, such as de, de-DE, deu, German or Deutsch; None for anything else."""
    said = text.strip().casefold()
    return _LANGUAGE_BY_NAME.get(said) or _LANGUAGE_BY_NAME.get(re.split(r"[-_.\s(]", said, maxsplit=1)[0])


def detect_page_language(page: Page, language: str) -> str:
    """The language to stem a page in, of those of its wiki.

    What the page says of itself counts. In a language the wiki was not given no query would be read, so such a page is
    stemmed as the wiki's own; and so is one that says nothing and whose small words leave doubt.
    """
    own, *further = split_languages(language)
    if not further:
        return own
    said = find_language(page.metadata.language) if page.metadata.language else None
    if said is not None:
        return said if said in further else own
    return guess_language(_CODE_BLOCK.sub(" ", page.body[:_MAX_SAMPLE_CHARS]), own, further)


def guess_language(text: str, main_language: str, other_languages: Sequence[str]) -> str:
    """The language with clearly the most small words in a text: half as many again as each of the others."""
    words = [normalize_term(token) for token in TOKEN_PATTERN.findall(text)]
    counts = {language: sum(map(get_stopwords(language).__contains__, words)) for language in (main_language, *other_languages)}
    best = max(counts, key=counts.__getitem__)
    others = max((count for language, count in counts.items() if language != best), default=0)
    return best if counts[best] >= _MIN_STOPWORDS and 2 * counts[best] >= 3 * others else main_language
