# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""vLLM's engine protocol, with the stubs that PyPI's smg-grpc-proto publishes, against the real server. Run by run.py."""

import hashlib
import io
import json
import random
import unittest
import zipfile

import grpc
import tokenizers
from smg_grpc_proto.generated import common_pb2, vllm_engine_pb2 as engine, vllm_engine_pb2_grpc

import our_server

PROMPT = "Once upon a time"


class EngineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = our_server.Server()
        cls.channel = grpc.insecure_channel(cls.server.grpc)
        cls.stub = vllm_engine_pb2_grpc.VllmEngineStub(cls.channel)
        cls.prompt = cls.server.tokenize(PROMPT, add_bos=True)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        code = cls.server.stop()
        assert code == 0, f"exit code {code}\n" + "".join(cls.server.log)

    def request(self, stream=True, **params):
        return engine.GenerateRequest(tokenized=engine.TokenizedInput(original_text=PROMPT, input_ids=self.prompt), stream=stream,
                                      sampling_params=engine.SamplingParams(**{"max_tokens": 30, "seed": 1, **params}))

    def tokens(self, request, **options):
        """By completion."""
        tokens = {}
        for reply in self.stub.Generate(request, timeout=60, **options):
            part = reply.chunk if reply.HasField("chunk") else reply.complete
            tokens.setdefault(part.index, []).extend(part.token_ids if reply.HasField("chunk") else part.output_ids)
        return tokens

    def refused(self, request, **options):
        with self.assertRaises(grpc.RpcError) as error:
            list(self.stub.Generate(request, timeout=60, **options))
        return error.exception.code(), error.exception.details()

    def test_the_published_descriptors_are_ours(self):
        self.assertEqual(our_server.our_shape("vllm/vllm_engine.proto"), our_server.published_shape(engine))
        self.assertEqual(our_server.our_shape("smg/common.proto"), our_server.published_shape(common_pb2))

    def test_the_same_tokens_as_in_our_own_api(self):
        for params in ({"temperature": 0}, {"temperature": 1, "top_p": 0.9, "seed": 7}, {"temperature": 0.7, "repetition_penalty": 1.3},
                       {"temperature": 1, "top_k": 5, "min_p": 0.05, "frequency_penalty": 0.5, "presence_penalty": 0.25}):
            with self.subTest(params):
                flags = {"max_tokens": 30, "seed": 1, "top_p": 1, "repetition_penalty": 1, **params}
                expected, _, _ = self.server.generate(PROMPT, **flags)
                self.assertEqual(self.tokens(self.request(**params)), {0: expected})
                self.assertEqual(self.tokens(self.request(stream=False, **params)), {0: expected})

    def test_completions_do_not_depend_on_their_number(self):
        three = self.tokens(self.request(temperature=1, n=3))
        self.assertEqual(sorted(three), [0, 1, 2])
        self.assertEqual(three[0], self.tokens(self.request(temperature=1))[0])

    def test_stop_and_logprobs(self):
        greedy = self.tokens(self.request(temperature=0))[0]
        replies = list(self.stub.Generate(self.request(stream=False, temperature=0, stop_token_ids=[greedy[9]], logprobs=2, prompt_logprobs=1), timeout=60))
        self.assertEqual(len(replies), 1)
        complete = replies[0].complete
        self.assertEqual(complete.finish_reason, "stop")
        self.assertEqual(complete.matched_token_id, greedy[9])
        self.assertEqual(list(complete.output_ids), greedy[:greedy.index(greedy[9]) + 1])
        self.assertEqual(list(complete.output_logprobs.token_ids), list(complete.output_ids))
        self.assertEqual({len(top.values) for top in complete.output_logprobs.top_logprobs}, {2})
        self.assertEqual(list(complete.input_logprobs.token_ids), self.prompt)
        self.assertFalse(complete.input_logprobs.token_logprobs[0].HasField("value"))
        self.assertLess(complete.input_logprobs.token_logprobs[1].value, 0)

    def test_structured_output(self):
        json_reply = self.request(stream=False, json_schema=json.dumps({"type": "boolean"}))
        _, choice = self.request(), self.request(stream=False, choice=engine.ChoiceConstraint(choices=["red", "blue"]))
        tokenizer = self.tokenizer()
        self.assertIn(tokenizer.decode(self.tokens(choice)[0]), ("red", "blue"))
        self.assertIn(tokenizer.decode(self.tokens(json_reply)[0]), ("true", "false"))

    def test_sessions(self):
        call = self.stub.Generate(self.request(temperature=0), metadata=[("x-session-id", "new")], timeout=60)
        session = dict(call.initial_metadata())["x-session-id"]
        said = [token for reply in call for token in reply.chunk.token_ids]
        more = self.request(temperature=0)
        more.tokenized.input_ids[:] = self.server.tokenize(" and then")
        after = self.tokens(more, metadata=[("x-session-id", session)])[0]
        whole = self.request(temperature=0)
        whole.tokenized.input_ids[:] = self.prompt + said + self.server.tokenize(" and then")
        self.assertEqual(after, self.tokens(whole)[0])
        code, details = self.refused(more, metadata=[("x-session-id", "unknown")])
        self.assertEqual(code, grpc.StatusCode.NOT_FOUND)
        self.assertIn("unknown", details)

    def test_abort_and_cancel(self):
        request = self.request(max_tokens=100000, ignore_eos=True)
        request.request_id = "long"
        call = self.stub.Generate(request, timeout=60)
        next(call)
        self.stub.Abort(engine.AbortRequest(request_ids=["long"]), timeout=60)
        last = list(call)[-1]
        self.assertEqual(last.complete.finish_reason, "abort")
        request.request_id = "left"
        call = self.stub.Generate(request, timeout=60)
        next(call)
        call.cancel()
        self.assertTrue(our_server.eventually(lambda: any("request_id=left" in line and "CANCELLED" in line for line in self.server.log)))

    def test_what_is_not_served_is_refused_by_name(self):
        for name, change in {"mm_inputs": lambda r: r.mm_inputs.SetInParent(), "kv_transfer_params_json": lambda r: setattr(r, "kv_transfer_params_json", "{}"),
                             "data_parallel_rank": lambda r: setattr(r, "data_parallel_rank", 1),
                             "temperature": lambda r: setattr(r.sampling_params, "temperature", -1),
                             "n = 65": lambda r: setattr(r.sampling_params, "n", 65),
                             "out of range": lambda r: r.tokenized.input_ids.append(1 << 30)}.items():
            with self.subTest(name):
                request = self.request()
                change(request)
                code, details = self.refused(request)
                self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
                self.assertIn(name, details)
        with self.assertRaises(grpc.RpcError) as error:
            self.stub.Embed(engine.EmbedRequest(), timeout=60)
        self.assertEqual(error.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_what_the_server_says_of_itself(self):
        self.assertTrue(self.stub.HealthCheck(engine.HealthCheckRequest(), timeout=60).healthy)
        model = self.stub.GetModelInfo(engine.GetModelInfoRequest(), timeout=60)
        self.assertEqual(model.served_model_name, "tales")
        self.assertEqual((model.bos_token_id, list(model.eos_token_ids)), (1, [2]))
        self.assertAlmostEqual(json.loads(model.default_sampling_params_json)["temperature"], 0.7, places=5)
        self.assertEqual(self.stub.GetServerInfo(engine.GetServerInfoRequest(), timeout=60).data_parallel_size, 1)
        loads = self.stub.GetLoads(engine.GetLoadsRequest(), timeout=60).loads
        self.assertEqual(len(loads), 1)

    def tokenizer(self):
        chunks = list(self.stub.GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=60))
        data = b"".join(chunk.data for chunk in chunks)
        self.assertEqual(chunks[-1].sha256, hashlib.sha256(data).hexdigest())
        archive = zipfile.ZipFile(io.BytesIO(data))
        self.assertIsNone(archive.testzip())
        self.assertEqual(archive.read("config.json"), (our_server.TALES / "config.json").read_bytes())
        return tokenizers.Tokenizer.from_str(archive.read("tokenizer.json").decode())

    # The bundled model has SentencePiece's file alone, so this is the exported one, read by the package that gateways use.
    def test_the_tokenizer_gives_the_same_ids(self):
        tokenizer = self.tokenizer()
        self.assertEqual(tokenizer.encode(PROMPT).ids, self.prompt)  # with BOS
        rng = random.Random(5)
        words = ["The", " king", "  ", "\n", "Bär", "日本", "🦊", "ing", "aaaa", "'s", "x", "\t", "é", "<s>", "</s>", "\u200b", "A", "0"]
        texts = ["".join(rng.choices(words, k=rng.randint(1, 30))) for _ in range(300)]
        texts += [path.read_text(encoding="utf-8") for path in (our_server.SOURCE / "models/tales/README.md", our_server.SOURCE / "README.md")]
        for text in texts:
            ids = self.server.tokenize(text, special_tokens=True)
            self.assertEqual(tokenizer.encode(text, add_special_tokens=False).ids, ids, repr(text))
            if "<" not in text and text[0] != "\n":
                self.assertEqual(tokenizer.decode(ids), text)


if __name__ == "__main__":
    unittest.main()
