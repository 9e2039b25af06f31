# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Generates JSON that fits a schema."""

import json
import os

from rivulet import Client

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "mood": {"enum": ["merry", "sad"]},
    },
    "required": ["name", "age", "mood"],
}

with Client(os.environ.get("RIVULET_SERVER", "localhost:8590")) as client:
    completion = client.generate("A king in a tale:", json_schema=SCHEMA, max_tokens=300, seed=6)
    king = json.loads(completion.text)
    print(king["name"], king["age"], king["mood"])
