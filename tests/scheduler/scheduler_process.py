"""A scheduler in a process of its own: `python -m tests.scheduler.scheduler_process DIRECTORY SECONDS [SLUG]`.

It reindexes SLUG, or only keeps indexes up to date.
It writes a line when it begins and ends when its standard input does.
"""

import sys
from pathlib import Path

from tests.scheduler.scheduler_fixtures import RecordingEmbedder, SchedulerFixture


def main() -> None:
    directory, seconds, *slugs = sys.argv[1:]
    ground = SchedulerFixture(Path(directory), RecordingEmbedder(float(seconds)))
    keeper = ground.make_scheduler()
    for slug in slugs:
        keeper.reindex(ground.get_wiki_id(slug))
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    sys.stdin.read()
    ground.close()


if __name__ == "__main__":
    main()
