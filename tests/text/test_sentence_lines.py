"""The lines on which a sentence of a passage is written."""

import pytest

from wikiholt.text.sentence_lines import find_lines

PASSAGE = """## Descaling

The machine wants vinegar once a month. Pour one
litre into the tank, and wait.

| Part | Every |
|---|---|
| Filter | 3 months |

Set the interval: `interval: 3`.

```yaml
machine:
  interval: 3
```"""


@pytest.mark.parametrize(
    ("sentence", "lines"),
    [
        ("The machine wants vinegar once a month.", (2, 2)),
        ("Pour one litre into the tank, and wait.", (2, 3)),
        ("Filter · 3 months", (7, 7)),
        ("machine: interval: 3", (12, 13)),
        ("nothing of this", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_a_sentence_is_on_the_lines_with_its_words_and_few_others(sentence: str, lines: tuple[int, int]) -> None:
    assert find_lines(PASSAGE, sentence) == lines
