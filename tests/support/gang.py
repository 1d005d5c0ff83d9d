"""What a cluster offers for gang scheduling, for tests of those who ask."""

from __future__ import annotations

from isthmus.modelserving.plan.model import NO_OFFER, Offer


class FixedGang:
    """What of a GangApi the controller uses: the same answer until the test gives another. `told` counts how
    often it heard that the API is gone."""

    def __init__(self, offer: Offer = NO_OFFER) -> None:
        self.given = offer
        self.told = 0
        self.doubts = 0

    async def offer(self) -> Offer:
        """See GangApi."""
        return self.given

    def gone(self) -> None:
        """See GangApi."""
        self.told += 1

    def doubt(self) -> None:
        """See GangApi."""
        self.doubts += 1
