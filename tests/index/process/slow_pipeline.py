"""A pipeline in which some pages keep a library busy for hours, in a module that other processes can import."""

import re
from datetime import datetime

from wikiholt.domain.page import Page, PageProblem
from wikiholt.index.pipeline import TextPipeline

SLOW_PAGE = b"hours\n" + b"word " * 20_000


class SlowPipeline(TextPipeline):
    def parse(self, file: str, blob: str, data: bytes, changed_at: datetime | None) -> Page | PageProblem:
        if data.startswith(b"hours"):
            re.search(r"a+b", "a" * 10_000_000)
        return super().parse(file, blob, data, changed_at)
