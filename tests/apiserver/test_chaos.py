"""A short random history against a control plane of its own; `make chaos` plays longer ones (tests/chaos)."""

from __future__ import annotations

import pytest

from isthmus.sandbox import NodeSettings
from tests.chaos.run import play
from tests.chaos.script import script
from tests.support.controlplane import StartSandbox

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

SEED = 7
STEPS = 14


async def test_short_history_must_keep_every_invariant_and_end_as_asked_for(
    private_controlplane: StartSandbox,
) -> None:
    node = NodeSettings(ready_delay_s=0.1, ready_jitter_s=0.4, delete_delay_s=0.2)
    sandbox = private_controlplane(nodes=2, node=node)
    steps = script(SEED, STEPS)
    counted, versions = await play(sandbox, SEED, steps)
    assert counted.total() == STEPS
    assert versions > STEPS
