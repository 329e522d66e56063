"""`python -m maxaffine` is the command `maxaffine`."""

import sys

from maxaffine.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
