"""Scripts without spaces: Chinese, Japanese, Korean, Thai."""

import pytest

from tests.search.languages.language_fixtures import LanguageFixture

LANGUAGE = "english"
PAGES = {
    "サーバー": "# サーバーの再起動\n\n障害が起きたら、まずサーバーを再起動してください。"
    "設定ファイルはIP_ADDR設定に書きます。",
    "当番": "# 当番\n\n当番は毎週月曜日に交代します。連絡先は東京の事務所です。コンピュータの鍵も渡します。",
    "庭": "# 庭の手入れ\n\n庭の土を春に耕す。ガラス温室の窓も開けること。",
    "备份": "# 备份\n\n数据库每天晚上备份一次。恢复之前请先停止服务器。",
    "会议": "# 会议室\n\n会议室在二楼,预订请发邮件。",
    "서버": "# 운영 안내\n\n서버를 다시 시작하려면 관리자에게 문의하세요. 비밀번호는 금고에 있습니다.",
    "도서": "# 도서\n\n책이 많이 있습니다. 빌린 것은 다음 주까지 반납하세요.",
    "ไทย": "# สำนักงาน\n\nสำนักงานเปิดเวลาแปดโมงเช้า กุญแจอยู่ที่ห้องประชุม",
}


@pytest.mark.parametrize(
    ("typed", "page"),
    [
        ("再起動", "サーバー"),
        ("サーバ", "サーバー"),
        ("ｻｰﾊﾞｰ", "サーバー"),
        ("サーハ\u3099ー", "サーバー"),
        ("コンピューター", "当番"),
        ("東京事務所", "当番"),
        ("庭", "庭"),
        ("土", "庭"),
        ("鍵 京", "当番"),
        ("番", "当番"),
        ("数据库", "备份"),
        ("服务器恢复", "备份"),
        ("楼", "会议"),
        ("IP_ADDR", "サーバー"),
        ("ip_addr設定", "サーバー"),
        ("ＩＰ＿ＡＤＤＲ", "サーバー"),
        ("서버", "서버"),
        ("서버가", "서버"),
        ("비밀번호를", "서버"),
        ("서버".encode().decode(), "서버"),
        ("\u1109\u1165\u1107\u1165", "서버"),
        ("책", "도서"),
        ("책을 ", "도서"),
        ("สำนักงาน", "ไทย"),
        ("ห้องประชุม", "ไทย"),
    ],
)
def test_the_page_is_found_first(language_wiki: LanguageFixture, typed: str, page: str) -> None:
    assert language_wiki.find_paths(typed)[0] == page


@pytest.mark.parametrize(
    ("typed", "pages"),
    [
        ('"月曜日に交代"', ["当番"]),
        ('"交代に月曜日"', []),
        ('"停止服务器"', ["备份"]),
        ('"서버를 다시"', ["서버"]),
        ('"二楼"', ["会议"]),
        ("庭 -土", []),
        ("が", []),
    ],
)
def test_phrases_and_exclusions_match_exactly(language_wiki: LanguageFixture, typed: str, pages: list[str]) -> None:
    if typed == "が":
        assert "庭" not in language_wiki.find_paths(typed)  # ガ is a different letter, and か differs from が
    else:
        assert language_wiki.find_paths(typed) == pages


def test_characters_and_pairs_are_marked(language_wiki: LanguageFixture) -> None:
    assert language_wiki.get_marked_words("再起動 ", "サーバー") == ["再起動"]
    assert language_wiki.get_marked_words("土 ", "庭") == ["土"]
    assert language_wiki.get_marked_words("窓 庭 ", "庭") == ["庭", "窓"]
    assert language_wiki.get_marked_words("서버 ", "서버") == ["서버"]
