"""`python -m wikiholt` does the same as `wikiholt`."""

import sys

from wikiholt.interfaces.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
