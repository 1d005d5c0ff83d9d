"""What Karmada makes of the names of Services, for whoever exports with it and whoever looks for the result.

Karmada puts `derived-<name>` into a Service's name and into a label, so that a longer name than NAME_LIMIT is
never imported, and Karmada says so nowhere near the export (PR-50, R40). The operator and the discovery
service read the same figures here. Pure.
"""

from __future__ import annotations

from typing import Final

from isthmus.api.names import LABEL_LIMIT

PREFIX: Final = "derived-"
NAME_LIMIT: Final = LABEL_LIMIT - len(PREFIX)
"""Characters of a Service's name that Karmada can collect: 55."""
