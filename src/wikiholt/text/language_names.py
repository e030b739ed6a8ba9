"""The languages of pages, and the codes and names under which a page declares them."""

import re

from wikiholt.errors import InvalidQuery

DEFAULT_LANGUAGE = "english"
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
LANGUAGES = tuple(_LANGUAGE_CODES)
"""The languages with a stemmer."""
_OTHER_CODES = {
    "chinese": "zh zho chi cn 中文",
    "hebrew": "he heb iw עברית",
    "japanese": "ja jpn jp 日本語",
    "korean": "ko kor kr 한국어",
    "thai": "th tha ไทย",
    "ukrainian": "uk ukr українська",
    "vietnamese": "vi vie",
}
PAGE_LANGUAGES = (*LANGUAGES, *_OTHER_CODES)
"""The languages that a page may have."""
_LANGUAGE_BY_NAME = {
    code.casefold(): name for name, codes in (_LANGUAGE_CODES | _OTHER_CODES).items() for code in (name, *codes.split())
}


def find_language(text: str) -> str | None:
    """The language for a code or a name, such as de, de-DE, deu, German or Deutsch; None if unknown."""
    name = text.strip().casefold()
    return _LANGUAGE_BY_NAME.get(name) or _LANGUAGE_BY_NAME.get(re.split(r"[-_.\s(]", name, maxsplit=1)[0])


def parse_language(text: str) -> str:
    """The language for a code or a name. Raises InvalidQuery."""
    language = find_language(text)
    if language is None:
        hint = f"use a code such as de, or one of {', '.join(sorted(PAGE_LANGUAGES))}"
        raise InvalidQuery(f"{text[:80]!r} is not a known language", hint=hint)
    return language
