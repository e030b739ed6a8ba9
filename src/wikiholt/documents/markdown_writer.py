"""Collects the text of a document as Markdown, up to a limit."""

import re

MAX_CHARS = 8_000_000
"""Characters of one document; the rest is left out, with a warning."""

_ESCAPED = re.compile(r"([\\`]|<(?=[A-Za-z/!?])|\[(?=\[)|(?<=\])\(|^(?:#{1,6}(?=\s)|>|~{3,}|\+(?=\s)))", re.MULTILINE)
_RULE = re.compile(r"^[ \t]*[-=_*]{2,}[ \t]*$", re.MULTILINE)
_SPACES = re.compile(r"[ \t\u00a0]+")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")


class MarkdownWriter:
    """Blocks of text, separated by blank lines."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._chars = 0
        self.title = ""
        self.warnings: list[str] = []

    @property
    def is_full(self) -> bool:
        return self._chars >= MAX_CHARS

    @property
    def has_text(self) -> bool:
        return self._chars > 0

    def add_heading(self, level: int, text: str) -> None:
        if plain := escape(" ".join(text.split())):
            self._blocks.append(f"{'#' * min(max(level, 1), 6)} {plain[:500]}")

    def add_paragraph(self, text: str, prefix: str = "") -> None:
        self._add(
            prefix + escape("\n".join(line.strip() for line in text.split("\n") if line.strip())), bool(text.strip())
        )

    def add_name(self, level: int, name: str) -> None:
        """Add a heading that is a name in source code."""
        self._blocks.append(f"{'#' * min(max(level, 1), 6)} `{' '.join(name.replace('`', '').split())[:200]}`")

    def add_code(self, text: str, info: str = "") -> None:
        longest = max(map(len, re.findall("`{6,}", text)), default=5)
        fence = "`" * (longest + 1)
        shown = text if info else text.strip("\n")
        self._add(f"{fence}{info}\n" + _CONTROL.sub("", shown) + f"\n{fence}", bool(text.strip()))

    def add_rows(self, rows: list[list[str]]) -> None:
        """Add a table; its first row is the header."""
        rows = [row for row in rows if any(cell.strip() for cell in row)]
        if not rows:
            return
        width = max(map(len, rows))
        lines = [_format_row(row, width) for row in rows]
        self._add("\n".join([lines[0], "|" + " --- |" * width, *lines[1:]]), True)

    def _add(self, block: str, has_text: bool) -> None:
        if has_text and not self.is_full:
            self._blocks.append(block)
            self._chars += len(block)
            if self.is_full:
                self.warnings.append(f"only the first {MAX_CHARS:,} characters of this document are indexed")

    def to_markdown(self) -> str:
        title = " ".join(_CONTROL.sub("", self.title).split())[:300]
        quoted = title.replace("\\", "\\\\").replace('"', '\\"')
        front = f'---\ntitle: "{quoted}"\n---\n\n' if title else ""
        return front + "\n\n".join(self._blocks) + "\n"


def escape(text: str) -> str:
    """The text such that Markdown displays it as it is."""
    return _ESCAPED.sub(r"\\\1", _RULE.sub("", _SPACES.sub(" ", _CONTROL.sub("", text))))


def _format_row(row: list[str], width: int) -> str:
    cells = (" ".join(escape(cell).split()).replace("|", "\\|") for cell in [*row, *[""] * (width - len(row))])
    return "| " + " | ".join(cells) + " |"
