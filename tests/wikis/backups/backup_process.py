"""A process that backs up, restores, syncs or restores the registry, over and over, until it is killed."""

import sys
from pathlib import Path

from tests.wikis.backups.backup_fixtures import BackupFixture
from wikiholt.errors import Busy


def main(directory: Path, operation: str) -> None:
    fixture = BackupFixture(directory, keep=3)
    print("ready", flush=True)  # noqa: T201 - the parent process waits for it
    while True:
        try:
            if operation == "take":
                fixture.get_wiki().backups.create()
            elif operation == "restore":
                fixture.get_wiki().restore()
            elif operation == "registry":
                fixture.service.registry.backups.restore()
                fixture.service.registry.backups.create()
            else:
                fixture.get_wiki().sync(from_scratch=True)
        except Busy:
            continue


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
