# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What the tests of this folder share: the real server, our own API beside the others, and published descriptors."""

import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import rivulet_server  # noqa: E402
from support.rivulet_server import BINARIES, SOURCE, TALES  # noqa: E402


class Server(rivulet_server.Server):
    """With our own API beside the others."""

    def generate(self, prompt, **flags):
        """(token ids, text, the last message) of our own API, by the command line; flags as `max_tokens=5`."""
        options = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
        said = subprocess.run([BINARIES / "rivulet", "generate", "--server", self.grpc, "--json", "--prompt", prompt, *options],
                              check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
        messages = [json.loads(line) for line in said.splitlines()]
        return ([token for message in messages for token in message.get("token_ids", [])],
                "".join(message.get("text", "") for message in messages), messages[-1])

    def tokenize(self, text, add_bos=False, special_tokens=False):
        """The ids that the server makes of a text."""
        request, response = message("rivulet.v1.TokenizeRequest")(), message("rivulet.v1.TokenizeResponse")
        request.text, request.add_bos, request.special_tokens = text, add_bos, special_tokens
        with grpc.insecure_channel(self.grpc) as channel:
            call = channel.unary_unary("/rivulet.v1.Inference/Tokenize", lambda m: m.SerializeToString(), response.FromString)
            return list(call(request, timeout=60).token_ids)

    def sessions(self):
        return subprocess.run([BINARIES / "rivulet", "sessions", "list", "--server", self.grpc], check=True, capture_output=True, text=True).stdout


@functools.cache
def our_protos():
    """The descriptors of proto/, as protoc reads them. Files have the names that they have there."""
    protos = [path.relative_to(SOURCE / "proto") for path in sorted((SOURCE / "proto").rglob("*.proto"))]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "set"
        subprocess.run(["protoc", "-I", SOURCE / "proto", f"--descriptor_set_out={out}", *map(str, protos)], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file


@functools.cache
def _pool():
    pool = descriptor_pool.DescriptorPool()
    files = {file.name: file for file in our_protos()}

    def add(file):
        for name in file.dependency:
            if name in files:
                add(files.pop(name))
        pool.Add(file)
    while files:
        add(files.pop(next(iter(files))))
    return pool


def message(name):
    """The class of a message of proto/."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))


def service(name):
    """The descriptor of a service of proto/."""
    return _pool().FindServiceByName(name)


RENAMED = {"tensor_descriptor": "descriptor"}  # proto/smg/common.proto says why


def shape(file):
    """What of a file decides the bytes on the wire: {name of a message, enumeration or service: its members}."""
    found = {}

    def fields(prefix, described):
        name = f"{prefix}.{described.name}"
        oneofs = [oneof.name for oneof in described.oneof_decl]
        found[name] = sorted((field.number, RENAMED.get(field.name, field.name), field.label, field.type, field.type_name, field.proto3_optional,
                              oneofs[field.oneof_index] if field.HasField("oneof_index") and not field.proto3_optional else None)
                             for field in described.field)
        for nested in described.nested_type:
            fields(name, nested)
        for nested in described.enum_type:
            found[f"{name}.{nested.name}"] = sorted((value.number, value.name) for value in nested.value)

    for described in file.message_type:
        fields(file.package, described)
    for described in file.enum_type:
        found[f"{file.package}.{described.name}"] = sorted((value.number, value.name) for value in described.value)
    for service in file.service:
        found[f"{file.package}.{service.name}"] = [
            (method.name, method.input_type, method.output_type, method.client_streaming, method.server_streaming) for method in service.method]
    return found


def our_shape(name):
    return shape(next(file for file in our_protos() if file.name == name))


def published_shape(module):
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return shape(file)


def make_chat_model(folder):
    subprocess.run([sys.executable, SOURCE / "tests/e2e/make_chat_model.py", folder], check=True)


def temporary_chat_model():
    """A folder that is removed by cleanup()."""
    folder = tempfile.TemporaryDirectory()
    make_chat_model(folder.name)
    return folder


def eventually(done, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done():
            return True
        threading.Event().wait(0.02)
    return False
