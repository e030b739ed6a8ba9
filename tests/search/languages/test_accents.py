"""Letters with more than one spelling: a page is found by every spelling."""

from pathlib import Path

import pytest

from tests.search.languages.language_fixtures import LanguageFixture

WIKIS = {
    "french": (
        "Le général a posé les clés près de l’œuvre. La garçonnière est fermée.",
        ["generaux", "GÉNÉRAL", "clé", "cle", "oeuvre", "œuvres", "l'oeuvre", "garçonnières", "garconniere",
         "d'œuvre"],
    ),
    "spanish": (
        "La contraseña está en el cajón; las configuraciones, en el árbol.",
        ["contrasenas", "contraseña", "cajon", "cajones", "configuración", "configuracion", "arbol",
         "ÁRBOLES"],
    ),
    "portuguese": (
        "A configuração do servidor e as ligações do escritório.",
        ["configurações", "configuracao", "configuração", "ligação", "servidores", "escritorio"],
    ),
    "italian": (
        "La città è più bella quando le utenze sono libere.",
        ["citta", "CITTÀ", "utenza"],
    ),
    "danish": (
        "Nøglen til serverrummet i København ligger på Århus’ hylde hos Bjørn.",
        ["noglen", "nøgle", "Kobenhavn", "Koebenhavn", "Aarhus", "arhus", "bjorn"],
    ),
    "norwegian": (
        "Nøklene ligger i skapet på kjøkkenet, ved siden av blåbærene.",
        ["nokkel nøklene", "kjokkenet", "kjøkkenet", "blabaerene", "blåbærene"],
    ),
    "swedish": (
        "Lösenorden ändras på måndagar. Användaren får ett brev från Örebro.",
        ["losenord", "lösenord", "användare", "anvandare", "Oerebro", "måndag"],
    ),
    "polish": (
        "Hasło użytkownika leży w sejfie w Łodzi, obok żółtej teczki.",
        ["haslo", "hasła", "uzytkownik", "Łódź łodzi", "lodzi", "zolta zoltej"],
    ),
    "turkish": (
        "İstanbul ofisinin ışıkları kapalı; şifreler çekmecede, Diyarbakır’da değil.",
        ["istanbul", "ISTANBUL", "İSTANBUL", "isiklari", "ışıklar", "şifre", "sifre", "DİYARBAKIR",
         "diyarbakir"],
    ),
    "russian": (
        "Новый сервер стоит под ёлкой, самолёт ещё не прилетел.",
        ["новые", "серверов", "елка", "ёлки", "самолет", "САМОЛЁТЫ", "еще сервера"],
    ),
    "greek": (
        "Ο διακομιστής βρίσκεται στην οδό Αθηνάς και οι κωδικοί στο συρτάρι.",
        ["ΔΙΑΚΟΜΙΣΤΗΣ", "διακομιστη", "Οδός", "ΟΔΟΣ", "κωδικός", "συρταρι"],
    ),
    "arabic": (
        "كِتابُ أحمد على الطاولة، المستخدمين في الإدارة.",
        ["كتاب", "الكتاب", "كتـــاب", "احمد", "أحمد", "الادارة", "مستخدم"],
    ),
    "hungarian": (
        "A felhasználók jelszavát a széfben őrizzük, a kiszolgálóknál.",
        ["felhasználó", "felhasznalok", "szef széfben", "kiszolgáló"],
    ),
    "finnish": (
        "Käyttäjän salasana on palvelimella, äiti tietää.",
        ["käyttäjä", "kayttaja", "palvelimen", "aiti"],
    ),
    "tamil": (
        "வீடுகள் மலையின் அருகே உள்ளன.",
        ["வீடு", "வீடுகள்"],
    ),
    "hindi": (
        "किताबें मेज़ पर हैं और लड़कियाँ पढ़ती हैं।",
        ["किताब", "लड़की", "मेज"],
    ),
    "english": (
        "Naïve façades in Łódź, a smørrebrød in Ærø, the ﬁle of İzmir, résumés; שָׁלוֹם to all.",
        ["naive", "facade", "lodz", "smorrebrod", "aero", "file", "izmir", "résumé", "resume resumes",
         "שלום"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("language", WIKIS)
def test_a_page_is_found_however_its_letters_are_typed(tmp_path: Path, language: str) -> None:
    text, queries = WIKIS[language]
    language_wiki = LanguageFixture(tmp_path, {"p": f"# Seite 1\n\n{text}", "other": "# Seite 2\n\n0000"}, language)
    try:
        lost = [typed for typed in queries if language_wiki.find_paths(f"{typed} ") != ["p"]]
        assert lost == []
        unmarked = [typed for typed in queries if not language_wiki.get_marked_words(f"{typed} ", "p")]
        assert unmarked == []
    finally:
        language_wiki.handle.close()
