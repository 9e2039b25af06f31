# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Tokens and tenants in vLLM's and KServe's protocols, against the real server. Run by run.py."""

import hashlib
import json
import pathlib
import tempfile
import unittest

import grpc
from smg_grpc_proto.generated import common_pb2, vllm_engine_pb2 as engine, vllm_engine_pb2_grpc
from tritonclient.grpc import service_pb2 as triton, service_pb2_grpc

import our_server

TOKENS = {"red": "the token of red", "blu": "the token of blu"}


def bearer(tenant):
    return [("authorization", f"Bearer {TOKENS[tenant]}")] if tenant else []


class TenantsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        file = pathlib.Path(cls.folder.name) / "tokens.json"
        file.write_text(json.dumps({"tenants": [{"name": tenant} for tenant in TOKENS], "tokens": [
            {"sha256": hashlib.sha256(token.encode()).hexdigest(), "tenant": tenant} for tenant, token in TOKENS.items()]}))
        file.chmod(0o600)
        cls.server = our_server.Server(our_server.TALES, f"--tokens={file}")
        cls.channel = grpc.insecure_channel(cls.server.grpc)
        cls.vllm = vllm_engine_pb2_grpc.VllmEngineStub(cls.channel)
        cls.kserve = service_pb2_grpc.GRPCInferenceServiceStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.folder.cleanup()
        assert cls.server.stop() == 0

    def generate(self, tenant, session, **params):
        request = engine.GenerateRequest(request_id="same", stream=True, tokenized=engine.TokenizedInput(input_ids=[1, 300]),
                                         sampling_params=engine.SamplingParams(**{"max_tokens": 4, **params}))
        return self.vllm.Generate(request, metadata=[*bearer(tenant), *([("x-session-id", session)] if session else [])], timeout=60)

    @staticmethod
    def infer_request(sequence=None, **parameters):
        request = triton.ModelInferRequest(model_name="tales", id="1")
        tensor = request.inputs.add(name="input_ids", datatype="INT32", shape=[2])
        tensor.contents.int_contents.extend([1, 300])
        request.parameters["max_tokens"].int64_param = 4
        if sequence is not None:
            request.parameters["sequence_id"].int64_param = sequence
        for name, value in parameters.items():
            request.parameters[name].bool_param = value
        return request

    def infer(self, tenant, *arguments, **parameters):
        return self.kserve.ModelInfer(self.infer_request(*arguments, **parameters), metadata=bearer(tenant), timeout=60)

    def refused(self, code, call):
        with self.assertRaises(grpc.RpcError) as error:
            call()
        self.assertEqual(error.exception.code(), code)

    def test_calls_without_a_token_are_refused(self):
        for call in (lambda: list(self.generate(None, "")), lambda: self.vllm.GetModelInfo(engine.GetModelInfoRequest(), timeout=60),
                     lambda: list(self.vllm.GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=60)),
                     lambda: self.vllm.Abort(engine.AbortRequest(), timeout=60), lambda: self.infer(None),
                     lambda: self.vllm.FlushCache(common_pb2.FlushCacheRequest(), timeout=60),
                     lambda: self.vllm.Embed(engine.EmbedRequest(), timeout=60),
                     lambda: list(self.vllm.SubscribeKvEvents(common_pb2.SubscribeKvEventsRequest(), timeout=60)),
                     lambda: self.kserve.RepositoryModelLoad(triton.RepositoryModelLoadRequest(model_name="tales"), timeout=60),
                     lambda: self.kserve.ModelMetadata(triton.ModelMetadataRequest(name="tales"), timeout=60),
                     lambda: list(self.kserve.ModelStreamInfer(iter([self.infer_request()]), timeout=60))):
            self.refused(grpc.StatusCode.UNAUTHENTICATED, call)

    def test_sessions_and_sequences_belong_to_their_tenant(self):
        call = self.generate("red", "new")
        session = dict(call.initial_metadata())["x-session-id"]
        list(call)
        self.refused(grpc.StatusCode.NOT_FOUND, lambda: list(self.generate("blu", session)))
        list(self.generate("red", session))
        self.infer("red", 7, sequence_start=True)
        self.refused(grpc.StatusCode.NOT_FOUND, lambda: self.infer("blu", 7))
        self.infer("blu", 7, sequence_start=True, sequence_end=True)  # a sequence of its own, and the end of that alone
        self.infer("red", 7, sequence_end=True)

    def test_a_tenant_aborts_its_own_requests(self):
        call = self.generate("red", "", max_tokens=100000, ignore_eos=True)
        next(call)
        self.vllm.Abort(engine.AbortRequest(request_ids=["same"]), metadata=bearer("blu"), timeout=60)
        for _ in range(20):
            self.assertTrue(next(call).HasField("chunk"))
        self.vllm.Abort(engine.AbortRequest(request_ids=["same"]), metadata=bearer("red"), timeout=60)
        self.assertEqual(list(call)[-1].complete.finish_reason, "abort")


    def test_a_tenant_flushes_its_own_cache(self):
        request = engine.GenerateRequest(tokenized=engine.TokenizedInput(input_ids=[1, *range(300, 400)]),
                                         sampling_params=engine.SamplingParams(max_tokens=1))

        def cached(tenant):
            return list(self.vllm.Generate(request, metadata=bearer(tenant), timeout=60))[-1].complete.cached_tokens
        for tenant in TOKENS:
            cached(tenant)
            self.assertGreater(cached(tenant), 0)
        self.assertTrue(self.vllm.FlushCache(common_pb2.FlushCacheRequest(), metadata=bearer("blu"), timeout=60).success)
        self.assertEqual(cached("blu"), 0)
        self.assertGreater(cached("red"), 0)


if __name__ == "__main__":
    unittest.main()
