# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""One completion, and what is known about it."""

import os

from rivulet import Client

with Client(os.environ.get("RIVULET_SERVER", "localhost:8590")) as client:
    print(client.model().name)
    completion = client.generate("Once upon a time", max_tokens=60, temperature=0.7, seed=1, logprobs=1)
    print(completion.text)
    print(completion.finish_reason, completion.usage.completion_tokens, completion.logprobs[0].logprob)
