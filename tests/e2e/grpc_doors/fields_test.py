# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Every field of every request of every protocol, set to values at and beyond what any check allows, against the real server: the answer
is a reply or an error that blames the client, and the server goes on. Which fields there are is read from the descriptors of proto/ and,
for HTTP, from the tables of docs/http.md. Run by run.py."""

import http.client
import json
import re
import unittest

import grpc
from google.protobuf.descriptor import FieldDescriptor as Field

import our_server

# What may be said of a request that was made up. DEADLINE_EXCEEDED: it was a good one, and long.
BLAMES_THE_CLIENT = {"OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE", "NOT_FOUND", "ALREADY_EXISTS", "ABORTED",
                     "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"}
TEXTS = ["", "x", "\0", "new", "../../etc/passwd", "a\r\nb: c", "\u202e\U0001f4a5", "é" * 300, "a" + "é" * 300, "a" * 70000, "{", "-1", "nan"]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 3e38, -3e38, float("inf"), float("-inf"), float("nan")]
INTEGERS = {Field.CPPTYPE_INT32: [0, -1, 2**31 - 1, -2**31], Field.CPPTYPE_INT64: [0, -1, 2**63 - 1, -2**63],
            Field.CPPTYPE_UINT32: [0, 1, 2**31, 2**32 - 1], Field.CPPTYPE_UINT64: [0, 1, 2**63, 2**64 - 1]}
DEEPEST = 4
# Methods that answer whatever the bytes are: their requests say nothing, or they are not served.
NOT_READ = {"GetTokenizer", "Embed", "StartProfile", "StopProfile", "SubscribeKvEvents", "RepositoryModelLoad", "RepositoryModelUnload",
            "SystemSharedMemoryRegister", "CudaSharedMemoryRegister", "TraceSetting", "LogSettings"}
NOT_UTF8 = b"\xff\xc0\xaf\xed\xa0\x80"


def scalars(field):
    kind = field.cpp_type
    if kind in (Field.CPPTYPE_FLOAT, Field.CPPTYPE_DOUBLE):
        return FLOATS
    if kind == Field.CPPTYPE_BOOL:
        return [True, False]
    if kind == Field.CPPTYPE_ENUM:
        return [0, 1, 99]
    if field.type == Field.TYPE_BYTES:
        return [text.encode() for text in TEXTS] + [NOT_UTF8]
    return TEXTS if kind == Field.CPPTYPE_STRING else INTEGERS[kind]


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def changes(descriptor, depth=0):
    """(what, change) for each field of a message and each value; change(message) sets it."""
    for field in descriptor.fields:
        if is_map(field):
            yield from changes_of_map(field)
        elif field.cpp_type == Field.CPPTYPE_MESSAGE:
            yield from changes_inside(field, depth)
        elif field.is_repeated:
            for value in scalars(field):
                for count in (1, 3000):
                    yield f"{field.name} = {count} x {value!r:.30}", lambda m, f=field, v=value, n=count: getattr(m, f.name).extend([v] * n)
        else:
            for value in scalars(field):
                yield f"{field.name} = {value!r:.30}", lambda m, f=field, v=value: setattr(m, f.name, v)


def changes_of_map(field):
    keys, values = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
    for key in scalars(keys):
        if values.message_type is not None:
            yield f"{field.name}[{key!r:.30}]", lambda m, f=field, k=key: getattr(m, f.name)[k].SetInParent()
            continue
        for value in scalars(values):
            yield f"{field.name}[{key!r:.30}] = {value!r:.30}", lambda m, f=field, k=key, v=value: getattr(m, f.name).update({k: v})


def changes_inside(field, depth):
    def inside(message):
        return getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
    yield f"{field.name}: empty", lambda m: inside(m).SetInParent()
    if field.is_repeated:
        yield f"{field.name}: 3000 empty", lambda m: [inside(m) for _ in range(3000)]
    if depth < DEEPEST:
        for what, change in changes(field.message_type, depth + 1):
            yield f"{field.name}.{what}", lambda m, c=change: c(inside(m))


def texts_that_are_not_utf8(descriptor):
    """Bytes to add to a message: such a text in each of its own fields, and unknown fields of each type."""
    def varint(number):
        more = [number >> shift & 0x7f for shift in range(0, max(number.bit_length(), 1), 7)]
        return bytes([byte | 0x80 for byte in more[:-1]] + more[-1:])
    for field in descriptor.fields:
        if field.type == Field.TYPE_STRING:
            yield f"{field.name}: not UTF-8", varint(field.number << 3 | 2) + bytes([len(NOT_UTF8)]) + NOT_UTF8, {"INVALID_ARGUMENT"}
    unknown = 20000 << 3
    for what, more in {"varint": varint(unknown) + b"\x01", "64 bits": varint(unknown | 1) + bytes(8), "text": varint(unknown | 2) + b"\x01x",
                       "32 bits": varint(unknown | 5) + bytes(4)}.items():
        yield f"unknown field, {what}", more, BLAMES_THE_CLIENT
    for what, more in {"a varint without end": b"\x08" + b"\xff" * 11, "a length beyond the end": b"\x0a\x7f", "field 0": b"\x02\x00",
                       "the end of a group": b"\x0c", "type 7": b"\x0f"}.items():
        yield what, more, {"INVALID_ARGUMENT"}


TEXT_INPUT = {"name": "text_input", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [b"Once"]}}
# Requests that are good, for fields to be changed in. Those of other methods are empty.
GOOD = {
    "rivulet.v1.GenerateRequest": {"prompt": "Once", "max_tokens": 1, "sampling": {"seed": 1}},
    "rivulet.v1.ChatRequest": {"turn": {"prompt": "Once", "max_tokens": 1}},
    "rivulet.v1.ScoreRequest": {"prompt": "Once"},
    "vllm.grpc.engine.GenerateRequest": {"text": "Once", "sampling_params": {"max_tokens": 1, "seed": 1}},
    "inference.ModelInferRequest": {"model_name": "tales", "inputs": [TEXT_INPUT]},
}


def good(descriptor):
    made = our_server.message(descriptor.full_name)(**GOOD.get(descriptor.full_name, {}))
    if descriptor.full_name == "inference.ModelInferRequest":
        made.parameters["max_tokens"].int64_param = 1
    return made


class GrpcFieldsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = our_server.Server()
        cls.channel = grpc.insecure_channel(cls.server.grpc, [("grpc.max_receive_message_length", 64 << 20)])

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        code = cls.server.stop()
        assert code == 0, f"exit code {code}\n" + "".join(cls.server.log[-50:])

    def code_of(self, service, method, sent):
        path = f"/{service.full_name}/{method.name}"
        kinds = {(False, False): self.channel.unary_unary, (False, True): self.channel.unary_stream, (True, True): self.channel.stream_stream}
        call = kinds[method.client_streaming, method.server_streaming](path, None, None)
        try:
            answer = call(iter([sent]) if method.client_streaming else sent, timeout=1)
            if method.server_streaming:
                for reply in answer:
                    self.check_streamed_error(method, reply)
            return "OK", ""
        except grpc.RpcError as error:
            return error.code().name, error.details()

    def check_streamed_error(self, method, reply):
        if method.name != "ModelStreamInfer":
            return
        text = our_server.message("inference.ModelStreamInferResponse").FromString(reply).error_message
        self.assertIn(text.split(":")[0] or "OK", BLAMES_THE_CLIENT, text)

    def test_every_field_of_every_method(self):
        expected = self.server.generate("Once", max_tokens=20, temperature=0)
        sent = 0
        for name in ("rivulet.v1.Inference", "rivulet.v1.Sessions", "vllm.grpc.engine.VllmEngine", "inference.GRPCInferenceService"):
            service = our_server.service(name)
            for method in service.methods:
                described = our_server.message(method.input_type.full_name).DESCRIPTOR
                for what, bytes_to_send, allowed in self.requests(described):
                    code, details = self.code_of(service, method, bytes_to_send)
                    sent += 1
                    allowed = BLAMES_THE_CLIENT if method.name in NOT_READ else allowed
                    self.assertIn(code, allowed, f"{name}.{method.name}, {what}: {details}")
                    self.assertTrue(code in ("OK", "DEADLINE_EXCEEDED") or details, f"{name}.{method.name}, {what}: no text")
        self.assertEqual(self.server.generate("Once", max_tokens=20, temperature=0)[:2], expected[:2])
        print(f"{sent} requests of gRPC")

    @staticmethod
    def requests(described):
        for what, change in changes(described):
            request = good(described)
            change(request)
            yield what, request.SerializeToString(), BLAMES_THE_CLIENT
        base = good(described).SerializeToString()
        for what, more, allowed in texts_that_are_not_utf8(described):
            yield what, base + more, allowed


JSON_VALUES = ["true", "false", "0", "-1", "1", "1.5", "2147483648", "9223372036854775808", "18446744073709551615", "-9223372036854775809",
               "1e308", "-1e308", "1e-320", "1e999", "NaN", '""', '"x"', '"\\u0000"', '"\\ud800"', '"\\ud83d\\udca5"', '"\xff"', '"\\x"', "'x'",
               '"' + "a" * 70000 + '"', "[]", "[[]]", "[null]", "[1]", '["x"]', "[{}]", '{}', '{"x": 1}', '{"x": {}}', '{"type": "x"}', '{"a": 1, "a": 2}',
               "[" * 70 + "]" * 70, "[" * 50 + "]" * 50, "[" + "1," * 5000 + "1]", "{", "", "1 1", "/**/1"]
ENDPOINTS = {"/v1/completions": {"prompt": "Once", "max_tokens": 1, "seed": 1}, "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1},
             "/v1/responses": {"input": "Once", "max_output_tokens": 1}, "/v1/sessions": {}}


def fields_of_http():
    """Every name in the first columns of the tables of fields."""
    text = (our_server.SOURCE / "docs/http.md").read_text(encoding="utf-8")
    names = set()
    for section in ("Fields", "Sessions", "Responses"):
        body = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]
        for row in re.findall(r"^\|(.*)$", body, re.MULTILINE):
            for name in re.findall(r"`([^`]+)`", row.split("|")[0] + (row.split("|")[1] if section == "Sessions" else "")):
                names.add(re.split(r"[.:\[ ]", name)[0])
    return sorted(name for name in names if re.fullmatch(r"[a-z_]+", name))


class HttpFieldsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = our_server.temporary_chat_model()
        cls.server = our_server.Server(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, f"exit code {code}\n" + "".join(cls.server.log[-50:])

    def post(self, path, body):
        connection = http.client.HTTPConnection(self.server.http, timeout=1)
        try:
            connection.request("POST", path, body)
            response = connection.getresponse()
            return response.status, response.read(), response.getheader("Content-Type")
        except TimeoutError:  # a good one, and long
            return 200, b"{}", ""
        finally:
            connection.close()

    def check(self, path, what, status, said, content_type, field):
        where = f"{path}, {what}: {status} {said[:300]}"
        self.assertIn(status, (200, 400, 404, 409, 413, 429, 501), where)
        if status == 200:
            return
        self.assertEqual(content_type, "application/json", where)
        error = json.loads(said)["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"}, where)
        self.assertTrue(error["message"] and "INTERNAL" not in error["message"], where)
        if status == 400 and not error["message"].startswith("the body"):
            self.assertEqual(re.split(r"[.\[]", error["param"] or "")[0], field[:100], where)

    def test_every_field_of_every_path(self):
        fields, sent = fields_of_http(), 0
        self.assertGreater(len(fields), 60)
        for path, base in ENDPOINTS.items():
            for field in [*fields, "no_such_field", "\u0000", "x" * 5000]:
                for value in JSON_VALUES:
                    rest = {name: other for name, other in base.items() if name != field and {name, field} != {"max_tokens", "max_completion_tokens"}}
                    body = json.dumps(rest)[:-1] + (", " if rest else "") + json.dumps(field) + ": " + value + "}"
                    status, said, content_type = self.post(path, body.encode("latin-1"))
                    sent += 1
                    self.check(path, f"{field[:40]} = {value[:40]}", status, said, content_type, field)
                    if field == "no_such_field" and value == "1":
                        self.assertEqual(status, 400)
        print(f"{sent} requests of HTTP, {len(fields)} fields")


if __name__ == "__main__":
    unittest.main()
