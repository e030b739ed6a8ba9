"""A process that backs up, restores, syncs or restores the registry, over and over, until it is killed."""

import sys
from pathlib import Path

from tests.wikis.backups.backup_fixtures import BackupFixture
from wikiholt.errors import Busy


def main(directory: Path, operation: str) -> None:
    ground = BackupFixture(directory, keep=3)
    print("ready", flush=True)  # noqa: T201 - who started this process waits for it
    while True:
        try:
            if operation == "take":
                ground.get_wiki().backups.create()
            elif operation == "restore":
                ground.get_wiki().restore()
            elif operation == "registry":
                ground.service.registry.backups.restore()
                ground.service.registry.backups.create()
            else:
                ground.get_wiki().reindex()
        except Busy:
            continue


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
