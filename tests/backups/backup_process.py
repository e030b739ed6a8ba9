"""A process that backs up, restores, syncs or restores the registry, over and over, until it is killed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "sources"))

from backup_ground import Ground

from wikiholt.errors import Busy


def main(directory: Path, what: str) -> None:
    ground = Ground(directory, keep=3)
    print("ready", flush=True)  # noqa: T201 - who started this process waits for it
    while True:
        try:
            if what == "take":
                ground.wiki().backups.take()
            elif what == "restore":
                ground.wiki().restore()
            elif what == "registry":
                ground.service.registry.backups.restore()
                ground.service.registry.backups.take()
            else:
                ground.wiki().reindex()
        except Busy:
            continue


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
