# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""A session keeps its context on the server. Forks go on from it independently; a rewind forgets what came last."""

import os

from rivulet import Client

with Client(os.environ.get("RIVULET_SERVER", "localhost:8590")) as client, client.create_session(name="a tale") as session:
    session.generate("There was once a poor miller who had three sons.", max_tokens=40, seed=3)
    here = session.info().position

    with session.fork(name="the other way") as other:
        print("one way:  ", session.generate(" The eldest", max_tokens=30, seed=4).text)
        print("another:  ", other.generate(" The youngest", max_tokens=30, seed=4).text)

    session.rewind(here)
    print("once more:", session.generate(" The eldest", max_tokens=30, seed=5).text)
