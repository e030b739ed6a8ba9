"""A scheduler in a separate process: `python -m tests.scheduler.scheduler_process DIRECTORY SECONDS [SLUG]`.

It reindexes SLUG if given, and keeps all indexes up to date.
It writes a line when it has started and stops when its standard input is closed.
"""

import sys
from pathlib import Path

from tests.scheduler.scheduler_fixtures import RecordingEmbedder, SchedulerFixture


def main() -> None:
    directory, seconds, *slugs = sys.argv[1:]
    fixture = SchedulerFixture(Path(directory), RecordingEmbedder(float(seconds)))
    scheduler = fixture.make_scheduler()
    for slug in slugs:
        scheduler.reindex(fixture.get_wiki_id(slug))
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    sys.stdin.read()
    fixture.close()


if __name__ == "__main__":
    main()
