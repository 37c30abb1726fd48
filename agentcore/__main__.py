"""`python -m agentcore`: the same as the command `agentcore`."""

import sys

from agentcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
