# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The messages and methods of rivulet.v1, from the descriptors that the package was built with."""

import pathlib
from typing import Any, Dict, Tuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "rivulet.v1"


def _load() -> Any:
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(__file__).with_name("inference.binpb").read_bytes())
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _load()
_CLASSES: Dict[str, Any] = {}


def _class_of(descriptor: Any) -> Any:
    if descriptor.full_name not in _CLASSES:
        if hasattr(message_factory, "GetMessageClass"):
            made = message_factory.GetMessageClass(descriptor)
        else:  # protobuf 4.21
            made = message_factory.MessageFactory(_POOL).GetPrototype(descriptor)
        _CLASSES[descriptor.full_name] = made
    return _CLASSES[descriptor.full_name]


def message(name: str, **fields: Any) -> Any:
    """A new message of this name."""
    return _class_of(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))(**fields)


def method(service: str, name: str) -> Tuple[str, Any, Any]:
    """The path of a method, and what writes its request and reads its response."""
    found = _POOL.FindServiceByName(f"{_PACKAGE}.{service}").methods_by_name[name]
    request, response = _class_of(found.input_type), _class_of(found.output_type)
    return f"/{_PACKAGE}.{service}/{name}", request.SerializeToString, response.FromString


def name_of(enum: str, value: int) -> str:
    """FINISH_REASON_STOP, for example."""
    return str(_POOL.FindEnumTypeByName(f"{_PACKAGE}.{enum}").values_by_number[value].name)
