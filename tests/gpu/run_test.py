#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run on programs that print what googletest prints."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).with_name("run")

# Ten cases, of which a shard runs every n-th; BEHAVIOUR is what it does with case 7.
PROGRAM = """#!/usr/bin/env python3
import os, sys, time
if "--gtest_list_tests" in sys.argv:
    print("Suite.")
    for i in range(10): print(f"  Case/{i}  # GetParam() = {i}")
    sys.exit(0)
assert os.environ["REQUIRE_GPU"] == "1"
for i in range(int(os.environ["GTEST_SHARD_INDEX"]), 10, int(os.environ["GTEST_TOTAL_SHARDS"])):
    print(f"[ RUN      ] Suite.Case/{i}", flush=True)
    if i == 7: BEHAVIOUR
    print(f"[       OK ] Suite.Case/{i} (3 ms)", flush=True)
"""
FAILS = 'print("expected 1, got 2\\n[  FAILED  ] Suite.Case/7, where GetParam() = 7 (3 ms)"); sys.exit(1)'


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.packed = pathlib.Path(folder.name)
        (self.packed / "test").mkdir()
        (self.packed / "commit").write_text("abc123\n")

    def add(self, name, behaviour):
        program = self.packed / "test" / name
        program.write_text(PROGRAM.replace("BEHAVIOUR", behaviour))
        program.chmod(0o755)

    def run_tests(self, *arguments):
        return subprocess.run([RUN, self.packed, "--logs", self.packed / "logs", *arguments], capture_output=True, text=True, timeout=60)

    def test_counts_cases_of_all_shards(self):
        self.add("good_test", "pass")
        result = self.run_tests("--at-once", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| `good_test` | 10 | 10 | 0 | 0 |  |", result.stdout)
        self.assertIn("abc123", result.stdout)

    def test_shows_what_a_failed_case_printed(self):
        self.add("bad_test", FAILS)
        result = self.run_tests("--at-once", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("| `bad_test` | 10 | 7 | 1 | 0 | 2 |", result.stdout)
        self.assertIn("bad_test: Suite.Case/7 failed", result.stdout)
        self.assertIn("expected 1, got 2", result.stdout)

    def test_a_program_that_breaks_off_is_a_failure(self):
        self.add("broken_test", "os.abort()")
        result = self.run_tests()
        self.assertEqual(result.returncode, 1)
        self.assertIn("exit code -6", result.stdout)

    def test_stops_at_the_limit(self):
        self.add("slow_test", "time.sleep(50)")
        result = self.run_tests("--limit", "1", "--at-once", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| `slow_test` | 10 | 7 | 0 | 0 | 3 (time) |", result.stdout)

    def test_refuses_programs_that_are_not_there(self):
        self.add("good_test", "pass")
        self.assertEqual(self.run_tests("other_test").returncode, 2)
        self.assertEqual(self.run_tests("good_test:a", "good_test:b").returncode, 2)


if __name__ == "__main__":
    sys.exit(unittest.main())
