# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Text as it is generated, until we have heard enough."""

import os

from rivulet import Client

with Client(os.environ.get("RIVULET_SERVER", "localhost:8590")) as client:
    text = ""
    with client.stream("The old king said", max_tokens=400, seed=2) as stream:
        for piece in stream:
            print(piece.text, end="", flush=True)
            text += piece.text
            if text.count(".") == 2:
                break  # leaving the block ends the generation on the server
    print()
