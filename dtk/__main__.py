"""`python -m dtk`: the same as the command `dtk`."""

import sys

from dtk.cli import main

sys.exit(main())
