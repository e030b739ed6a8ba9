"""A scheduler in a separate process: `python -m tests.sync.scheduler_process DIRECTORY SECONDS [SLUG TEXT]`.

It keeps all indexes up to date. With SLUG, it reindexes this wiki and blocks before it embeds TEXT.
It writes a line when it has started and stops when its standard input is closed.
"""

import sys
from pathlib import Path

from tests.sync.scheduler_fixtures import RecordingEmbedder, SchedulerFixture


def main() -> None:
    directory, seconds, *reindexed = sys.argv[1:]
    embedder = RecordingEmbedder(float(seconds))
    fixture = SchedulerFixture(Path(directory), embedder)
    scheduler = fixture.make_scheduler()
    if reindexed:
        slug, text = reindexed
        embedder.block(text)
        scheduler.reindex(fixture.get_wiki_id(slug))
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    sys.stdin.read()
    fixture.close()


if __name__ == "__main__":
    main()
