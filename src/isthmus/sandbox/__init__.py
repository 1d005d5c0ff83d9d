"""Real control planes on this machine with a simulated node, for tests, demonstrations and benchmarks.

`Sandbox.start()` is the way in. Production code never imports this package.
"""

from isthmus.sandbox.sandbox import Cluster, Sandbox, SandboxFailed
from isthmus.sandbox.settings import NodeSettings

__all__ = ["Cluster", "NodeSettings", "Sandbox", "SandboxFailed"]
