"""How an operator of some namespaces and one of the whole cluster keep out of each other's way (R33).

operator.py calls `claim` before the controllers are built; see runtime/claims.py. Without the rights that it
takes the operator works all the same, and says which are missing.
"""

from __future__ import annotations

from typing import Final

from isthmus import logs
from isthmus.api.configcheck import parse_duration
from isthmus.api.coordination import LEASES
from isthmus.app.building import Building
from isthmus.kube.errors import Forbidden
from isthmus.runtime.claims import LABEL, Claimant, OtherClaims, Times, holder_name

log = logs.get(__name__)

QUEUE: Final = "namespaces"


async def claim(building: Building) -> None:
    """Let controllers work only where this operator may: a restricted one in the namespaces that it holds,
    which the Claimant sees to; one of the whole cluster where nobody else does."""
    options = building.options
    if not options.namespaces:
        try:
            await building.client.list_page(LEASES, label_selector=LABEL, limit=1)
        except Forbidden as error:
            log.warning(
                "cannot see which namespaces are another operator's: grant list and watch on leases",
                error=error.message,
            )
        else:
            building.claims = OtherClaims(building.cache(LEASES, selector=LABEL), building.clock)
        return
    scope = options.configuration.namespace.scope
    claimant = Claimant(
        building.client,
        options.namespaces,
        holder=holder_name(
            options.lease_namespace or options.config.namespace,
            options.lease_name,
            elected=options.leader_elect,
        ),
        clock=building.clock,
        times=Times(parse_duration(scope.lease_duration), parse_duration(scope.lease_renew_interval)),
    )
    building.control(QUEUE, claimant.reconcile, building.queue(QUEUE, claimant.keys))
    building.claims = claimant
    building.farewell(claimant.release)
