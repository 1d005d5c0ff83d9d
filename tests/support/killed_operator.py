"""`python -m tests.support.killed_operator K operator ...`: the operator, dead by SIGKILL as its K-th write
is to leave."""

from __future__ import annotations

import os
import signal
import sys

from isthmus.cli.main import main
from isthmus.kube import client


class KillingGate:
    """A write gate that lets K - 1 writes pass."""

    left = int(sys.argv.pop(1)) if __name__ == "__main__" else 0

    def check(self) -> None:
        """End the process at the last write that it may send."""
        KillingGate.left -= 1
        if KillingGate.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    vars(client)["OpenGate"] = KillingGate
    main()
