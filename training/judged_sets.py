"""Write the judged collections as the file that `training.evaluate` reads.

python -m training.judged_sets COLLECTIONS OUTPUT
"""

import json
import lzma
import sys
from hashlib import sha1
from pathlib import Path

from bench.collections import SHARED_NAMES, get_page_path, read_documents, read_queries, to_page
from wikiholt.domain.git import Blob
from wikiholt.index.pipeline import PageTask, PreparedPage, TextPipeline
from wikiholt.models.model_loader import load_tokenizer


def main() -> None:
    collections, output = map(Path, sys.argv[1:])
    tokenizer, pipeline = load_tokenizer("granite-embedding-30m-english"), TextPipeline()
    sets = {}
    for name in SHARED_NAMES:
        texts, pages = [], []
        for document in read_documents(collections / name):
            data = to_page(document).encode()
            file = get_page_path(document["id"]) + ".md"
            page = pipeline.prepare(PageTask(file, Blob(sha1(data).hexdigest(), len(data), data), None), tokenizer)
            if isinstance(page, PreparedPage):
                texts += page.texts
                pages += [get_page_path(document["id"])] * len(page.texts)
        queries = {
            kind.kind or "queries": [
                [text, kind.relevant[query], sorted(kind.exclude.get(query, ()))] for query, text in kind.texts.items()
            ]
            for kind in read_queries(collections / name)
        }
        sets[name] = {"texts": texts, "pages": pages, "queries": queries}
        print(name, len(texts), "texts", {kind: len(rows) for kind, rows in queries.items()}, flush=True)
    with lzma.open(output, "wt", preset=6, encoding="utf-8") as file:
        json.dump(sets, file, ensure_ascii=False)


if __name__ == "__main__":
    main()
