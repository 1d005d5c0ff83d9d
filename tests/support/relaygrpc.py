"""A client of the relay's gRPC contract that shares no code with the relay: compiled from relay.proto by
grpcio-tools, once per process."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from grpc_tools import protoc  # type: ignore[import-untyped] # it has no types

PROTO: Final = Path(str(files("isthmus.relay.plan"))) / "relay.proto"
MARKER: Final = 1263948337
SERVICE: Final = "/dynamo.kvrelay.v1.KvEventRelay/"


@cache
def contract() -> Any:
    """The messages of relay.proto, as protobuf's own classes."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{PROTO.parent}", f"--python_out={folder}", str(PROTO)]
        assert protoc.main(arguments) == 0
        return _load("relay_pb2", Path(folder) / "relay_pb2.py")


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def method(channel: Any, name: str, request: str, answer: str) -> Any:
    """A callable for one method of the service: unary for GetRelayInfo, else a stream."""
    found = contract()
    make = channel.unary_unary if name == "GetRelayInfo" else channel.unary_stream
    return make(
        f"{SERVICE}{name}",
        request_serializer=getattr(found, request).SerializeToString,
        response_deserializer=getattr(found, answer).FromString,
    )
