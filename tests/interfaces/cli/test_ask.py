"""The command `ask`: text, JSON, exit codes and errors."""

import json

from tests.interfaces.cli.cli_fixtures import CommandRunner


def test_a_question_gets_sentences_with_places_or_the_closest_pages(run: CommandRunner) -> None:
    code, out, _ = run("ask", "-w", "house", "mind the step in the boiler room")
    document_code, document_out, _ = run("ask", "-w", "house", "mind the step in the boiler room", "--json")
    document = json.loads(document_out)
    assert code == document_code == (0 if document["answered"] else 1)
    assert "% likely" in out
    if document["answered"]:
        first = document["sentences"][0]
        assert f"{first['file']}:{first['line']}@{document['indexed_revision'][:10]}" in out
    else:
        assert "This wiki does not say. The closest pages are:" in out
    assert document["closest"][0]["file"] in out or document["answered"]


def test_a_wiki_that_does_not_exist_and_an_empty_question_are_errors(run: CommandRunner) -> None:
    code, _, err = run("ask", "-w", "hous", "where is the key")
    assert code == 3
    assert "house" in err
    for question in (" ", "why " * 501):
        code, _, err = run("ask", "-w", "house", question)
        assert code == 2
        assert "hint:" in err


def test_a_filter_without_pages_has_no_answer(run: CommandRunner) -> None:
    code, out, _ = run("ask", "-w", "house", "--path", "Nowhere", "where is the key")
    assert code == 1
    assert out.startswith("This wiki does not say.")
