"""`python -m logitd.cli`: the `logitd` command without its script."""

import sys

from logitd.cli import main

sys.exit(main())
