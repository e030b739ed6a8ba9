"""Stopwords of languages (articles, pronouns, prepositions, auxiliaries), and the language of a page.

Queries drop these words. For languages other than English a short list is sufficient: a common word that is not listed
occurs on most pages of its wiki and so has little weight.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from wikiholt.text.analysis import TOKEN_PATTERN, join_languages, normalize_term, split_languages
from wikiholt.text.language_names import DEFAULT_LANGUAGE, LANGUAGES, find_language

_STOPWORDS = {
    "english": """a about an and are as at be been but by can could did do does for from had has have how i if in
        into is it its me my no not of on or our should so than that the their them then there these they this to us
        was we were what when where which who why will with would you your""",
    "german": """aber als also am an auch auf aus bei beim bin bis da damit dann das dass dem den denn der des die
        dies diese diesem diesen dieser dieses doch dort du durch ein eine einem einen einer eines er es für gegen
        gibt haben hat hier ich ihr ihre ihren im in ins ist ja kann kein keine können man mein mich mir mit muss müssen
        nach nicht noch nur ob oder ohne sein seine seinen sich sie sind so sollte über um und uns unter vom von vor
        wann war waren warum was welche welcher welches wenn wer werden wie wir wird wo wurde zu zum zur zwischen""",
    "french": """à ai alors au aucun aussi aux avec avez avoir avons c ce ces cet cette ceux chez comme comment d
        dans de des donc dont du elle elles en est et était être eux fait faut il ils j je l la le les leur leurs
        lui m ma mais mes mon n ne nos notre nous on ont ou où par pas peut plus pour pourquoi qu quand que quel
        quelle quelles quels qui quoi s sa sans se sera ses si son sont sous sur t ta te tes ton tous tout toute tu
        un une vos votre vous y""",
    "spanish": """a al algo ante antes aquel aquella así aún aunque cada como cómo con cuál cuando cuándo cuyo de
        del desde donde dónde durante e el él ella ellas ellos en entre era es esa ese eso esta está estaba están
        este esto estos fue ha había han hasta hay la las le les lo los mas más me mi mis muy ni no nos nosotros o
        otra otro para pero por porque pues puede que qué quien quién se sea ser si sí sin sobre son su sus también
        tan te tiene todo tu tus un una uno unos y ya yo""",
    "italian": """a ad agli ai al alla alle allo anche c che chi ci come con cosa cui d da dagli dai dal dalla dalle
        del della delle dello dei degli di dopo dove e è ed era essere fra gli ha hai hanno ho i il in io l la le
        lei li lo loro lui ma mi mio ne nei negli nel nella nelle nello noi non o per perché più può qual quale
        quali quando questa queste questi questo qui se sei si sia solo sono sta su sua sue sugli sui sul sulla suo
        suoi tra tu tutti un una uno vi voi""",
    "portuguese": """a à ao aos as às até com como da das de dela dele deles depois do dos e é ela elas ele eles em
        entre era essa esse está estão esta este eu foi for há isso isto já lhe mais mas me mesmo meu minha muito na
        não nas nem no nos nós num numa o onde os ou para pela pelas pelo pelos por porque pode qual quando que quem
        se sem ser seu seus são só sobre sua suas também tem têm um uma uns você vocês""",
    "dutch": """aan al als bij dan dat de deze die dit doen door dus een en er gaan geen had heb hebben heeft het
        hier hij hoe hun ik in is je jij jullie kan kunnen maar me mee meer men met mijn moet moeten na naar niet
        nog nu of om omdat onder ons ook op over te tegen toch toen tot u uit uw van veel voor waar waarom wanneer
        want waren was wat we wel welke werd wie wij worden wordt zal ze zich zij zijn zo zonder zou""",
    "swedish": """alla allt att av blev bli blir de dem den denna deras dess det detta där du då efter ej eller en
        ett finns för från får han hade har hon hur här i icke inte jag kan kommer man med mellan men mig min mot
        mycket måste ni nu när någon något några och om oss på sedan sig sin ska skulle som så till under upp ut
        utan vad var vara varför vem vi vid vilka vilken vilket är över""",
    "danish": """af alle at blev blive bliver da de dem den denne der deres det dette dig din du efter eller en end
        er et for fordi fra før ham han har have havde hende her hos hun hvad hvem hver hvilken hvilket hvis hvor
        hvordan hvorfor hvornår i ikke ind jeg kan kunne man med meget men mellem mig min mod må nogle nu når og
        også om op os over på sig sin skal skulle som så til ud uden under var ved vi vil være""",
    "norwegian": """alle at av bare ble bli blir da de dem den denne der deres det dette deg din du eller en enn er
        et etter for fordi fra før ha hadde han har hos hun hva hvem hver hvilken hvilket hvis hvor hvordan hvorfor
        i ikke inn jeg kan kunne man med meg meget mellom men min mot mye må noe noen nå når og også om opp oss over
        på seg sin skal skulle som så til under ut uten var ved vi vil være""",
    "finnish": """ei eivät emme en että hän he ja jos joka jonka jos jotka jossa joten kai kanssa kaikki koska kuin
        kuinka kun me mikä miksi mille milloin miten minä missä mitä mitkä mukaan mutta myös ne niiden niin niitä
        noin nyt ole olen olet oli olisi olla olleet ollut on ovat sekä se sen siellä siinä siis sille sinä sitä tai
        tämä tämän te tuo tässä vaan vai vaikka voi vain""",
    "hungarian": """a az azt aki ami amely amikor azok be csak de e egy egyik el és ez ezek ezt fel ha hanem hogy
        hogyan hol igen ill is itt ki kell lehet lesz le meg mert mely melyik mi miért mikor mint mit már még minden
        nagyon ne nem nincs ott ő ön pedig s sem szerint után vagy van vannak volt""",
    "russian": """а без более бы был была были было быть в вам вас весь во вот все всего всех вы где да для до его
        ее если есть еще же за и из или им их к как какая какие какой когда кто ли либо меня мне может мы на над
        надо нас не него нее нет ни них но о об однако он она они оно от по под после при про с сам со так также
        такой там то того тоже только том ту ты у уже чего чем что чтобы эта эти это этого этой этот я""",
    "polish": """a aby ale albo bez bo by być był była było były ci co czy dla do gdy gdzie go i ich ile im jak jaki
        jako jest jeśli jej jego już kiedy kto która które który lub ma mnie może można my na nad nie nich niż o od
        oraz po pod ponieważ przed przez przy są się skąd ta tak także tam te tego tej ten to tu ty tych tylko tym w
        we wszystko z za ze że""",
    "czech": """a aby ale ani až bez být byl byla bylo byly co či do ho i j já jak jaké jako je jeho jejich jen
        jestli ji jsem jsme jsou k kam kde kdo kdy kdyby když ke která které který ma má mezi mi může my na nad nebo
        není než o od po pod pokud pro proč proto protože před při s se si tak také tam ten tento to tom tu ty u už
        v ve však z za ze že""",
    "romanian": """a ai al ale am ar are aș au că când care ce cel cea cei cele cine cu cum da dacă dar de decât
        deci despre din după e ea ei el ele este eu fără fi fie fost în îi îl între la le lor lui mai mi ne nici noi
        nu o pe pentru poate prin sau să se și sunt te tot un una unde unei unor unui va vor""",
    "catalan": """a al als amb aquest aquesta aquests això com d de del dels des el ella elles ells els en entre era
        és està estan fins ha han hi i ja l la les li ho m més molt n no o on per perquè però pel pels pot què quan
        que qui s se sense ser seu seva si sobre són també te té tot un una uns""",
    "turkish": """ama ancak bana bazı ben bir biz bu bunu bunun çok da daha de değil diye en gibi hangi hem her hiç
        için ile ise işte kadar ki kim mi mı mu mü nasıl ne neden nerede niçin o olan olarak olduğu olur onlar onu
        sen siz sonra şey şu var ve veya ya yok zaman""",
    "greek": """αλλά αν από αυτά αυτές αυτή αυτό αυτός αυτών για δεν εάν είναι εκεί ένα έναν ένας εδώ επίσης έχει
        έχουν ή η θα και κάθε κατά με μετά μη μην μας μια μόνο μου να ο οι όμως όπως όπου όταν ότι που πού πώς πως
        προς πριν σας σε στα στη στην στις στο στον στους σου τα τη την της τι τις το τον του τους των ως""",
    "arabic": """أن إن أو أي إذا إلى التي الذي الذين أنا أنت بعد بين تم ثم حتى حيث عن على عند عندما غير في قبل قد
        كان كانت كل كما كيف لا لكن لم لماذا لن ليس ما متى مع من منذ نحن هذا هذه هل هم هو هي و يكون يمكن""",
    "indonesian": """ada adalah agar akan anda apa atau bagaimana bagi bahwa bisa dalam dan dapat dari dengan di dia
        ini itu jika juga kami kapan karena kata ke kepada kita lebih mana mengapa mereka oleh pada saat saya
        sebagai secara sebuah sudah tidak untuk yang""",
}

_SCRIPTS = (
    ("japanese", re.compile(r"[\u3040-\u30ff]"), 0.1),
    ("korean", re.compile(r"[\uac00-\ud7ff]"), 0.3),
    ("chinese", re.compile(r"[\u4e00-\u9fff]"), 0.3),
    ("thai", re.compile(r"[\u0e00-\u0e7f]"), 0.3),
    ("persian", re.compile("[\u067e\u0686\u0698\u06a9\u06af\u06cc]"), 0.05),
    ("hindi", re.compile(r"[\u0900-\u097f]"), 0.3),
    ("hebrew", re.compile(r"[\u0590-\u05ff]"), 0.3),
    ("vietnamese", re.compile("[\u0103\u0111\u01a1\u01b0\u1ea0-\u1ef9]"), 0.1),
    ("ukrainian", re.compile("[\u0456\u0457\u0454\u0491]"), 0.03),
)
"""Languages without spaces between words or without a list, the letters that show them, and their share of a text."""
_CODE_BLOCK = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)|`[^`\n]*+`", re.MULTILINE | re.DOTALL)
_MAX_READ_CHARS, _MAX_SAMPLE_CHARS = 20_000, 8_000
"""Characters of a page that are read, and of its text without code that show its language."""
_DECLARED = re.compile(r"\A---\n(?:.*\n){0,60}?(?:lang|language|locale):[ ]*+[\"']?([^\s\"']++)")
_MIN_SHARE = 0.05
"""The share of a wiki's pages from which its queries are read in their language; half of it for one already used."""
_MAX_LANGUAGES = 5
"""Languages in which the queries of a wiki are read."""
_MIN_STOPWORDS = 4
"""Minimum number of stopwords of a language for a detection."""
_MIN_QUERY_STOPWORDS = 2
"""Minimum number of stopwords that show the language of a query."""


@cache
def get_stopwords(language: str) -> frozenset[str]:
    """The stopwords of a language, normalized; empty for a language without a list."""
    return frozenset(map(normalize_term, _STOPWORDS.get(language, "").split()))


def get_stopword_text(language: str) -> str:
    """The same words as written, to be analysed in the language."""
    return _STOPWORDS.get(language, "")


@cache
def _get_languages_by_stopword() -> dict[str, list[str]]:
    languages: dict[str, list[str]] = {}
    for language in _STOPWORDS:
        for word in get_stopwords(language):
            languages.setdefault(word, []).append(language)
    return languages


def is_stopword(word: str) -> bool:
    """Whether a normalized word is a stopword of any language."""
    return word in _get_languages_by_stopword()


def _count_stopwords(words: Iterable[str]) -> Counter[str]:
    """Language → how many of these words are its stopwords."""
    known = _get_languages_by_stopword()
    return Counter(language for word in words for language in known.get(word, ()))


def is_in_other_language(query: str, language: str) -> bool:
    """Whether a query is in a language that the wiki does not have.

    It has at least two stopwords of that language, and more than twice as many as of the wiki's languages.
    """
    words = frozenset(map(normalize_term, TOKEN_PATTERN.findall(query)))
    own = words.intersection(frozenset[str]().union(*map(get_stopwords, split_languages(language))))
    foreign = max(_count_stopwords(words - own).values(), default=0)
    return foreign >= _MIN_QUERY_STOPWORDS and foreign > 2 * len(own)


def guess_query_language(query: str) -> str:
    """The language with the most stopwords in a query, at least two; "" if another one has as many."""
    words = frozenset(map(normalize_term, TOKEN_PATTERN.findall(query)))
    (best, count), (_, second) = [*_count_stopwords(words).most_common(2), ("", 0), ("", 0)][:2]
    return best if count >= _MIN_QUERY_STOPWORDS and count > second else ""


def is_text_in_other_language(text: str, language: str) -> bool:
    """Whether a text is clearly in another language, also in one that the wiki does not have."""
    return _choose(_count_stopwords(_fold_words(text)), (language, *_STOPWORDS)) not in ("", language)


def find_text_language(text: str) -> str:
    """The language that the text of a page clearly shows; "" if there is none."""
    sample = _take_sample(text)
    return _find_by_script(sample) or _find_by_stopwords(_fold_words(sample))


def detect_language(text: str, languages: Sequence[str]) -> str:
    """The language that the text of a page clearly shows; else the clearest of these; else the first of these."""
    sample = _take_sample(text)
    words = _fold_words(sample)
    found = _find_by_script(sample) or _find_by_stopwords(words)
    return found or _choose(_count_stopwords(words), languages) or languages[0]


def detect_wiki_languages(texts: Iterable[str], previous: str) -> str:
    """The languages of the pages with these texts that have a stemmer, joined; the main one is first.

    A language of `previous` stays if it has some pages, and its main language until another one has twice as many.
    Other pages count as English: their terms in other letters are not stemmed.
    """
    found = Counter(filter(None, map(_find_declared_language, texts)))
    counts = Counter[str]()
    for language, count in found.items():
        counts[language if language in LANGUAGES else DEFAULT_LANGUAGE] += count
    if not counts:
        return previous
    main_language, *others = split_languages(previous)
    best, best_count = counts.most_common(1)[0]
    if best_count > 2 * counts[main_language]:
        main_language = best
    least = _MIN_SHARE * counts.total()
    kept = [
        language
        for language, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if count >= (least / 2 if language in (main_language, *others) else least)
    ]
    return join_languages(main_language, kept[:_MAX_LANGUAGES])


def find_main_language(pages: Mapping[str, int]) -> str:
    """The language of more than half of the pages, given the number of pages of each; "" if there is none."""
    (best, count), *_ = [*Counter(pages).most_common(1), ("", 0)]
    return best if 2 * count > sum(pages.values()) else ""


def _find_declared_language(text: str) -> str:
    """The language in the frontmatter of a page, or else that of its text."""
    declared = _DECLARED.match(text)
    return (find_language(declared[1]) if declared else None) or find_text_language(text)


def _take_sample(text: str) -> str:
    return _CODE_BLOCK.sub(" ", text[:_MAX_READ_CHARS])[:_MAX_SAMPLE_CHARS]


def _find_by_script(text: str) -> str:
    if text.isascii():
        return ""
    letters = sum(map(str.isalpha, text))
    fits = (name for name, pattern, share in _SCRIPTS if letters and len(pattern.findall(text)) >= share * letters)
    return next(fits, "")


def _fold_words(text: str) -> list[str]:
    return [*map(normalize_term, TOKEN_PATTERN.findall(text))]


def _find_by_stopwords(words: Iterable[str]) -> str:
    """The language that these words show. A stopword of several languages says less: de, la, el."""
    known = _get_languages_by_stopword()
    weights: dict[str, float] = {}
    counts = Counter(word for word in words if word in known)
    for word, count in counts.items():
        for language in known[word]:
            weights[language] = weights.get(language, 0.0) + count / len(known[word]) ** 2
    best = _choose(weights, tuple(_STOPWORDS), 0)
    return best if sum(count for word, count in counts.items() if best in known[word]) >= _MIN_STOPWORDS else ""


def _choose(counts: Mapping[str, float], languages: Sequence[str], minimum: float = _MIN_STOPWORDS) -> str:
    """The one of these languages with clearly the most stopwords, at least 1.5 times as many as any other; else ""."""
    best = max(languages, key=lambda language: counts.get(language, 0))
    count = counts.get(best, 0)
    others = max((counts.get(language, 0) for language in languages if language != best), default=0)
    return best if count >= minimum and 2 * count >= 3 * others else ""
