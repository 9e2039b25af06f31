# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The Python client against the real server on the bundled model, and its examples. Run by run.py."""

import asyncio
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent import futures

import grpc
import rivulet
from rivulet import _proto

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.rivulet_server import SOURCE, TALES, Server  # noqa: E402

PROMPT = "Once upon a time"


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.client = rivulet.Client(cls.server.grpc, timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        assert cls.server.stop() == 0

    def test_generates_the_same_whole_and_in_pieces(self):
        whole = self.client.generate(PROMPT, max_tokens=30, seed=1, logprobs=2)
        self.assertEqual(whole.finish_reason, "length")
        self.assertEqual(whole.usage.completion_tokens, 30)
        self.assertEqual(len(whole.token_ids), 30)
        self.assertEqual(len(whole.logprobs[0].top), 2)
        stream = self.client.stream(PROMPT, max_tokens=30, seed=1)
        self.assertEqual(stream.seed, 1)
        pieces = list(stream)
        self.assertGreater(len(pieces), 2)
        self.assertEqual("".join(piece.text for piece in pieces), whole.text)
        ids = self.client.generate(self.client.tokenize(PROMPT), max_tokens=30, seed=1)
        self.assertEqual(len(ids.token_ids), 30)

    def test_passes_every_argument_on(self):
        several = self.client.generate_many(PROMPT, n=3, max_tokens=8, seed=2, stop=["xyz"], ignore_eos=True, logit_bias={5: -1.0})
        self.assertEqual([completion.index for completion in several], [0, 1, 2])
        stopped = self.client.generate(PROMPT, max_tokens=200, temperature=0, stop=" the")
        self.assertEqual((stopped.finish_reason, stopped.matched_stop), ("stop", " the"))
        request = rivulet.client.generate_request(None, messages=[{"role": "user", "content": "Hi", "mood": 1}], tools=[{"type": "function"}],
                                                  enable_thinking=False, template_variables={"a": 1})
        self.assertEqual(json.loads(request.messages.messages[0].fields), {"mood": 1})
        self.assertEqual((request.messages.enable_thinking, request.messages.variables), (False, '{"a": 1}'))
        for wrong in ({"max_token": 1}, {"messages": []}, {"regex": "a", "grammar": "b"}, {"tools": []}, {"choices": "ab"}, {"n": 2}, {"session_id": "a"}):
            with self.assertRaises(TypeError, msg=wrong):
                self.client.generate(PROMPT, **wrong)

    def test_structures_output(self):
        schema = {"type": "object", "properties": {"b": {"type": "boolean"}, "a": {"enum": [1, 2]}}, "required": ["b", "a"]}
        value = json.loads(self.client.generate(PROMPT, json_schema=schema, seed=3).text)
        self.assertEqual(list(value), ["b", "a"])
        self.assertIn(self.client.generate(PROMPT, choices=[" yes", " no"]).text, (" yes", " no"))
        self.assertRegex(self.client.generate(PROMPT, regex="[0-9]{3}").text, "^[0-9]{3}$")

    def test_scores_and_tokenizes(self):
        ids = self.client.tokenize(PROMPT)
        self.assertEqual(self.client.detokenize(ids), PROMPT)
        self.assertTrue(all(token.logprob <= 0 for token in self.client.score(PROMPT, top_logprobs=2)))
        self.assertEqual(self.client.model().name, "tales")

    def test_sessions_fork_and_rewind(self):
        with self.client.create_session(name="one") as session:
            session.generate(PROMPT, max_tokens=20, seed=4)
            position = session.info().position
            with session.fork(name="two") as fork:
                self.assertEqual(fork.info().forked_from, session.id)
                again = fork.generate(" he", max_tokens=20, seed=5).text
            first = session.generate(" he", max_tokens=20, seed=5)
            self.assertEqual(first.text, again)
            self.assertEqual(session.rewind(position).position, position)
            self.assertEqual(session.generate(" he", max_tokens=20, seed=5).text, first.text)
            self.assertEqual(session.rename("three").name, "three")
            self.assertIn(session.id, [info.id for info in self.client.sessions()])
            kept = session.generate_many(" and", n=2, max_tokens=5, keep_choices=True)
            self.client.session(kept[1].fork_id).delete()
        with self.assertRaises(rivulet.NotFound):
            session.info()

    def test_errors_have_classes_and_the_servers_words(self):
        with self.assertRaises(rivulet.InvalidRequest) as caught:
            self.client.generate(PROMPT, temperature=-1)
        self.assertIn("temperature", str(caught.exception))
        with self.assertRaises(rivulet.InvalidRequest):
            self.client.generate(messages=[{"role": "user", "content": "Hi"}])
        with self.assertRaises(rivulet.NotServed):
            self.client.generate(PROMPT, regex="(?=a)b")
        with self.assertRaises(rivulet.DeadlineExceeded):
            self.client.generate(PROMPT, max_tokens=100000, ignore_eos=True, timeout=0.2)
        started = time.monotonic()
        with rivulet.Client("127.0.0.1:1", timeout=2, max_retries=2) as nowhere, self.assertRaises(rivulet.RivuletError):
            nowhere.model()
        self.assertLess(time.monotonic() - started, 10)

    def test_leaving_a_stream_ends_it(self):
        with self.client.create_session() as session:
            with session.stream(PROMPT, max_tokens=100000, ignore_eos=True) as stream:
                next(iter(stream))
            # The turn ends soon: a second one waits for it, by the server's word.
            self.assertTrue(session.generate(" he", max_tokens=2).text)

    def test_asyncio(self):
        async def run():
            async with rivulet.AsyncClient(self.server.grpc, timeout=60) as client:
                several = await asyncio.gather(*(client.generate(PROMPT, max_tokens=10, seed=i) for i in range(8)))
                async with await client.create_session() as session:
                    await session.generate(PROMPT, max_tokens=5)
                    async with await session.fork() as fork:
                        await fork.rewind((await fork.info()).position)
                    pieces = [piece async for piece in await session.stream(" he", max_tokens=5)]
                    names = [info.id async for info in client.sessions()]
                with self.assertRaises(rivulet.NotFound):
                    await session.info()
                return several, pieces, names, session.id, (await client.model()).name

        several, pieces, names, session, model = asyncio.run(run())
        self.assertEqual([one.text for one in several], [self.client.generate(PROMPT, max_tokens=10, seed=i).text for i in range(8)])
        self.assertEqual(pieces[-1].finish_reason, "length")
        self.assertIn(session, names)
        self.assertEqual(model, "tales")

    def test_the_package_describes_itself(self):
        about = importlib.metadata.metadata("rivulet-client")
        self.assertEqual(about["License"], "Apache-2.0")
        self.assertEqual(about["Version"], re.search(r"project\(\w+ VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())[1])
        self.assertIn("Typing :: Typed", about.get_all("Classifier"))
        for name in ("Summary", "Author", "Keywords", "Requires-Python", "Requires-Dist", "Description-Content-Type"):
            self.assertTrue(about[name], name)
        self.assertTrue(about.get_payload().startswith("# Rivulet's Python client"))
        files = {file.name: file for file in importlib.metadata.files("rivulet-client")}
        self.assertIn("Apache License", files["LICENSE"].read_text())
        self.assertIn("py.typed", files)

    def test_examples(self):
        for example in sorted((SOURCE / "client/python/examples").glob("*.py")):
            done = subprocess.run([sys.executable, "-B", example], env={**os.environ, "RIVULET_SERVER": self.server.grpc}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, f"{example}: {done.stderr}")
            self.assertTrue(done.stdout.strip(), example)


class Refusing(grpc.GenericRpcHandler):
    """Refuses the first calls as a busy server does, and then answers."""

    def __init__(self, refusals, code, after=None):
        self.left, self.code, self.after, self.calls = refusals, code, after, 0

    def service(self, handler_call_details):
        model = _proto.message("Model", name="late")

        def answer(_, context):
            self.calls += 1
            if self.left == 0:
                return model
            self.left -= 1
            if self.after is not None:
                context.set_trailing_metadata((("retry-after-ms", str(self.after)),))
            context.abort(self.code, "later")

        return grpc.unary_unary_rpc_method_handler(answer, request_deserializer=lambda b: b, response_serializer=lambda m: m.SerializeToString())


class RetryTest(unittest.TestCase):
    def model_of(self, handler, **options):
        server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            with rivulet.Client(f"127.0.0.1:{port}", timeout=20, **options) as client:
                return client.model().name
        finally:
            server.stop(None).wait()

    def test_waits_as_long_as_the_server_says(self):
        started = time.monotonic()
        self.assertEqual(self.model_of(Refusing(2, grpc.StatusCode.RESOURCE_EXHAUSTED, 150)), "late")
        self.assertGreater(time.monotonic() - started, 0.29)

    def test_does_not_repeat_what_waiting_does_not_help(self):
        handler = Refusing(2, grpc.StatusCode.RESOURCE_EXHAUSTED)
        with self.assertRaises(rivulet.Overloaded):
            self.model_of(handler)
        self.assertEqual(handler.calls, 1)

    def test_repeats_a_lost_call_that_changes_nothing(self):
        self.assertEqual(self.model_of(Refusing(2, grpc.StatusCode.UNAVAILABLE)), "late")
        with self.assertRaises(rivulet.Unavailable):
            self.model_of(Refusing(2, grpc.StatusCode.UNAVAILABLE), max_retries=1)


class TokenTest(unittest.TestCase):
    """A server that asks for tokens."""

    def test_sends_its_token_with_every_call(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "tokens.json")
            file.write_text(json.dumps({"tenants": [{"name": "t"}],
                                        "tokens": [{"tenant": "t", "sha256": hashlib.sha256(b"secret").hexdigest()}]}))
            server = Server(TALES, f"--tokens={file}")
            try:
                with rivulet.Client(server.grpc, token="secret", timeout=60) as client:
                    self.assertEqual(len(client.generate(PROMPT, max_tokens=4).token_ids), 4)
                    self.assertEqual(len(client.tokenize(PROMPT)), 4)
                with rivulet.Client(server.grpc, timeout=60) as client, self.assertRaises(rivulet.NotAllowed) as refused:
                    client.generate(PROMPT, max_tokens=4)
                self.assertEqual(refused.exception.code, "UNAUTHENTICATED")
                asyncio.run(self.generates_asynchronously(server.grpc))
            finally:
                server.stop()

    async def generates_asynchronously(self, address):
        async with rivulet.AsyncClient(address, token="secret", timeout=60) as client:
            self.assertEqual(len((await client.generate(PROMPT, max_tokens=4)).token_ids), 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
