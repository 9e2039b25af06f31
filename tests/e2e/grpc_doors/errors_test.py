# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The table of errors in docs/http.md: one fault has the code of its row in every protocol, against the real server. Run by run.py."""

import hashlib
import http.client
import json
import pathlib
import re
import shutil
import signal
import tempfile
import unittest

import grpc
from smg_grpc_proto.generated import vllm_engine_pb2 as engine, vllm_engine_pb2_grpc
from tritonclient.grpc import service_pb2 as triton, service_pb2_grpc

import our_server

LONG = 10000000  # tokens: never reached
SEQUENCE = 7
SESSION = f"sequence:{SEQUENCE}"  # what the other protocols call it
UNSERVED = json.dumps({"not": {}})


def table():
    """{gRPC's code: (HTTP's status, the codes of its errors)}"""
    rows = {}
    for line in (our_server.SOURCE / "docs/http.md").read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| ([A-Z_]+) \| (\d+) \| (.+?) \|", line)
        if row is not None:
            rows[row[1]] = int(row[2]), {None if code == "none" else code.strip("`") for code in row[3].split(", ")}
    return rows


TABLE = table()


class Answer:
    """How a call ended: the code's name, the error's text, and when to retry, or None."""

    def __init__(self, code, text="", retry_after_ms=None):
        self.code, self.text, self.retry_after_ms = code, text, retry_after_ms


def of_call(call):
    try:
        call()
        return Answer("OK")
    except grpc.RpcError as error:
        return Answer(error.code().name, error.details(), dict(error.trailing_metadata() or ()).get("retry-after-ms"))


class Doors:
    """The same requests in each protocol, as a tenant. `server`: our_server.Server."""

    def __init__(self, server, token=None):
        self.server, self.token = server, token
        self.channel = grpc.insecure_channel(server.grpc)
        self.vllm_stub = vllm_engine_pb2_grpc.VllmEngineStub(self.channel)
        self.kserve_stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def close(self):
        self.channel.close()

    def metadata(self, session=""):
        authorization = [("authorization", f"Bearer {self.token}")] if self.token else []
        return [*authorization, *([("x-session-id", session)] if session else [])]

    def native_call(self, service, method, request, response, **fields):
        made = our_server.message(f"rivulet.v1.{request}")(**fields)
        call = self.channel.unary_unary(f"/rivulet.v1.{service}/{method}", lambda m: m.SerializeToString(),
                                        our_server.message(f"rivulet.v1.{response}").FromString)
        return of_call(lambda: call(made, metadata=self.metadata(), timeout=60))

    def native_stream(self, timeout=60, **fields):
        made = our_server.message("rivulet.v1.GenerateRequest")(**fields)
        call = self.channel.unary_stream("/rivulet.v1.Inference/Generate", lambda m: m.SerializeToString(),
                                         our_server.message("rivulet.v1.GenerateResponse").FromString)
        return call(made, metadata=self.metadata(), timeout=timeout)

    def native(self, text, session, schema, max_tokens, temperature, timeout):
        fields = {"max_tokens": max_tokens, "session_id": session, "sampling": {"temperature": temperature}}
        if schema:
            fields["structured_output"] = {"json_schema": schema}
        fields.update({"prompt": text} if text else {"token_ids": {"ids": [1, 300]}})
        return of_call(lambda: list(self.native_stream(timeout=timeout, **fields)))

    def vllm(self, text, session, schema, max_tokens, temperature, timeout):
        params = engine.SamplingParams(max_tokens=max_tokens, temperature=temperature)
        if schema:
            params.json_schema = schema
        made = engine.GenerateRequest(stream=True, sampling_params=params)
        if text:
            made.text = text
        else:
            made.tokenized.input_ids.extend([1, 300])
        return of_call(lambda: list(self.vllm_stub.Generate(made, metadata=self.metadata(session), timeout=timeout)))

    @staticmethod
    def kserve_request(text, session, max_tokens, temperature, stream):
        made = triton.ModelInferRequest(model_name="tales", id="1")
        tensor = made.inputs.add(name="text_input" if text else "input_ids", datatype="BYTES" if text else "INT32", shape=[1 if text else 2])
        if text:
            tensor.contents.bytes_contents.append(text.encode())
        else:
            tensor.contents.int_contents.extend([1, 300])
        made.inputs.add(name="stream", datatype="BOOL", shape=[1]).contents.bool_contents.append(stream)
        made.parameters["max_tokens"].int64_param = max_tokens
        made.parameters["temperature"].double_param = temperature
        if session:
            made.parameters["sequence_id"].string_param = session.removeprefix("sequence:")
        return made

    def kserve(self, text, session, schema, max_tokens, temperature, timeout):
        del schema
        made = self.kserve_request(text, session, max_tokens, temperature, False)
        return of_call(lambda: self.kserve_stub.ModelInfer(made, metadata=self.metadata(), timeout=timeout))

    def kserve_stream(self, text, session, schema, max_tokens, temperature, timeout):
        del schema
        made = self.kserve_request(text, session, max_tokens, temperature, True)
        try:
            for reply in self.kserve_stub.ModelStreamInfer(iter([made]), metadata=self.metadata(), timeout=timeout):
                if reply.error_message:
                    code, text = reply.error_message.split(": ", 1)
                    retry = reply.infer_response.parameters
                    return Answer(code, text, retry["retry-after-ms"].string_param if "retry-after-ms" in retry else None)
            return Answer("OK")
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details(), dict(error.trailing_metadata() or ()).get("retry-after-ms"))

    def http(self, text, session, schema, max_tokens, temperature, timeout):
        body = {"prompt": text or [1, 300], "max_tokens": max_tokens, "temperature": temperature}
        if schema:
            body["structured_outputs"] = {"json": schema}
        return self.http_call("POST", "/v1/completions", body, timeout, session)

    def http_call(self, method, path, body, timeout=60, session=""):
        """The row of the table whose status and code the answer has."""
        connection = http.client.HTTPConnection(self.server.http, timeout=timeout)
        connection.request(method, path, json.dumps(body), dict(self.metadata(session)))
        response = connection.getresponse()
        said = json.loads(response.read())
        connection.close()
        if response.status == 200:
            return Answer("OK")
        error = said["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        row = [code for code, (status, codes) in TABLE.items() if status == response.status and error["code"] in codes]
        assert len(row) == 1, (response.status, error)
        if response.getheader("retry-after-ms") is not None:
            assert int(response.getheader("Retry-After")) >= 1
        return Answer(row[0], error["message"], response.getheader("retry-after-ms"))

    def everywhere(self, text="", session="", schema="", max_tokens=1, temperature=0, timeout=60, skip=()):
        """{protocol: Answer}"""
        doors = {"native": self.native, "vllm": self.vllm, "kserve": self.kserve, "kserve_stream": self.kserve_stream, "http": self.http}
        return {name: door(text, session, schema, max_tokens, temperature, timeout) for name, door in doors.items() if name not in skip}


def token_file(folder, tenants, tokens):
    """Writes it; `tokens`: {token: its entry}."""
    file = pathlib.Path(folder) / "tokens.json"
    entries = [{"sha256": hashlib.sha256(token.encode()).hexdigest(), **entry} for token, entry in tokens.items()]
    file.write_text(json.dumps({"tenants": tenants, "tokens": entries}))
    file.chmod(0o600)
    return file


class ErrorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        file = token_file(cls.folder.name, [{"name": "red"}, {"name": "poor", "requests_per_minute": 1}],
                          {"of red": {"tenant": "red"}, "of a collector": {"tenant": "red", "scopes": ["metrics"]}, "of poor": {"tenant": "poor"}})
        cls.server = our_server.Server(our_server.TALES, f"--tokens={file}")
        cls.red = Doors(cls.server, "of red")

    @classmethod
    def tearDownClass(cls):
        cls.red.close()
        cls.folder.cleanup()
        code = cls.server.stop()
        assert code == 0, f"exit code {code}\n" + "".join(cls.server.log)

    def expect(self, code, answers, retry=False, text=""):
        for door, answer in answers.items():
            with self.subTest(door):
                self.assertEqual(answer.code, code, answer.text)
                self.assertEqual(answer.retry_after_ms is not None, retry, answer.text)
                self.assertIn(text, answer.text)

    def test_the_table_has_every_code(self):
        self.assertEqual(set(TABLE), {code.name for code in grpc.StatusCode} - {"OK", "UNKNOWN", "DATA_LOSS"})
        self.assertEqual({answer.code for answer in self.red.everywhere().values()}, {"OK"})

    def test_invalid_argument(self):
        self.expect("INVALID_ARGUMENT", self.red.everywhere(temperature=-1), text="temperature")

    def test_unauthenticated_and_permission_denied(self):
        for token, code in {None: "UNAUTHENTICATED", "guessed": "UNAUTHENTICATED", "of a collector": "PERMISSION_DENIED"}.items():
            doors = Doors(self.server, token)
            self.expect(code, doors.everywhere())
            doors.close()

    def test_not_found(self):
        self.expect("NOT_FOUND", self.red.everywhere(session="sequence:99"), text="sequence:99")

    def test_already_exists_and_out_of_range(self):
        made = {"id": "twice"}
        self.assertEqual(self.red.native_call("Sessions", "CreateSession", "CreateSessionRequest", "Session", **made).code, "OK")
        self.expect("ALREADY_EXISTS", {"native": self.red.native_call("Sessions", "CreateSession", "CreateSessionRequest", "Session", **made),
                                       "http": self.red.http_call("POST", "/v1/sessions", made)})
        rewind = {"id": "twice", "position": 5}
        self.expect("OUT_OF_RANGE", {"native": self.red.native_call("Sessions", "RewindSession", "RewindSessionRequest", "Session", **rewind),
                                     "http": self.red.http_call("POST", "/v1/sessions/twice/rewind", {"position": 5})})

    def test_aborted(self):
        self.red.native_call("Sessions", "CreateSession", "CreateSessionRequest", "Session", id=SESSION)
        turn = self.red.native_stream(session_id=SESSION, token_ids={"ids": [1, 300]}, max_tokens=LONG, stop={"ignore_eos": True})
        next(turn)
        self.expect("ABORTED", self.red.everywhere(session=SESSION), retry=True)
        turn.cancel()

    def test_resource_exhausted(self):
        poor = Doors(self.server, "of poor")
        poor.native("", "", "", 1, 0, 60)  # the one of this minute
        self.expect("RESOURCE_EXHAUSTED", poor.everywhere(), retry=True, text="in a minute")
        poor.close()

    def test_unimplemented(self):
        self.expect("UNIMPLEMENTED", self.red.everywhere(schema=UNSERVED, skip=("kserve", "kserve_stream")), text="not")
        load = triton.RepositoryModelLoadRequest(model_name="tales")
        self.expect("UNIMPLEMENTED", {
            "kserve": of_call(lambda: self.red.kserve_stub.RepositoryModelLoad(load, metadata=self.red.metadata(), timeout=60)),
            "vllm": of_call(lambda: self.red.vllm_stub.Embed(engine.EmbedRequest(), metadata=self.red.metadata(), timeout=60)),
            "http": self.red.http_call("POST", "/v1/embeddings", {"input": "x"})})

    def test_deadline_exceeded(self):
        answers = self.red.everywhere(max_tokens=LONG, timeout=0.3, skip=("http",))
        self.assertEqual({answer.code for answer in answers.values()}, {"DEADLINE_EXCEEDED"})


class ModelWithoutTokenizerTest(unittest.TestCase):
    def test_failed_precondition(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "tales"
            shutil.copytree(our_server.TALES, model, ignore=shutil.ignore_patterns("tokenizer*"))
            server = our_server.Server(model)
            doors = Doors(server)
            for door, answer in doors.everywhere(text="Once").items():
                with self.subTest(door):
                    self.assertEqual(answer.code, "FAILED_PRECONDITION", answer.text)
            doors.close()
            self.assertEqual(server.stop(), 0)


class DrainTest(unittest.TestCase):
    def test_unavailable(self):
        server = our_server.Server()
        doors = Doors(server)
        turn = doors.native_stream(token_ids={"ids": [1, 300]}, max_tokens=LONG, stop={"ignore_eos": True})
        next(turn)
        server.process.send_signal(signal.SIGTERM)
        self.assertTrue(our_server.eventually(lambda: any("drain" in line for line in server.log)))
        for door, answer in doors.everywhere().items():
            with self.subTest(door):
                self.assertEqual(answer.code, "UNAVAILABLE", answer.text)
        turn.cancel()
        doors.close()
        self.assertEqual(server.ended(), 0)


if __name__ == "__main__":
    unittest.main()
