#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run on programs that print what googletest prints, and tests/gpu/pack on a program of the machine."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

RUN = pathlib.Path(__file__).with_name("run")
PACK = pathlib.Path(__file__).with_name("pack")

# Ten cases, of which a shard runs every n-th that is named, or of all; BEHAVIOUR is what it does with case 7.
PROGRAM = """#!/usr/bin/env python3
import os, sys, time
named = [int(name.split("/")[1]) for name in sys.argv[-1].partition("=")[2].split(":") if "/" in name] or list(range(10))
if "--gtest_list_tests" in sys.argv:
    print("Suite.")
    for i in range(10): print(f"  Case/{i}  # GetParam() = {i}")
    sys.exit(0)
assert os.environ["REQUIRE_GPU"] == "1"
for i in named[int(os.environ["GTEST_SHARD_INDEX"])::int(os.environ["GTEST_TOTAL_SHARDS"])]:
    print(f"[ RUN      ] Suite.Case/{i}", flush=True)
    if i == 7:
        BEHAVIOUR
    print(f"[       OK ] Suite.Case/{i} (3 ms)", flush=True)
"""
FAILS = 'print("expected 1, got 2\\n[  FAILED  ] Suite.Case/7, where GetParam() = 7 (3 ms)"); sys.exit(1)'


class RunTest(unittest.TestCase):
    UNUSED = "Error: Target application terminated before first instrumented API call"

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

    def test_lists_cases_without_running_them(self):
        self.add("bad_test", FAILS)
        result = self.run_tests("--list", "bad_test:*")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "bad_test: 10 cases\n")

    def test_parts_have_all_cases_once(self):
        self.add("good_test", "pass")
        ran = []
        for part in ("1/3", "2/3", "3/3"):
            result = self.run_tests("--at-once", "2", "--part", part)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            count = 4 if part == "1/3" else 3
            self.assertIn(f"| `good_test` | {count} | {count} | 0 | 0 |  |", result.stdout)
            for log in (self.packed / "logs").glob("*.log"):
                ran += [line.split("/")[1] for line in log.read_text().splitlines() if line.startswith("[ RUN")]
                log.unlink()
        self.assertEqual(sorted(ran), [str(i) for i in range(10)])

    def test_a_part_may_have_no_cases(self):
        self.add("good_test", "pass")
        result = self.run_tests("--part", "11/11")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("| `good_test` | 0 | 0 | 0 | 0 |  |", result.stdout)

    def test_refuses_wrong_parts(self):
        self.add("good_test", "pass")
        for part in ("0/3", "4/3", "2", "a/b", "1/0"):
            self.assertEqual(self.run_tests("--part", part).returncode, 2, part)

    def test_goes_on_where_the_limit_cut_a_program_off(self):
        self.add("slow_test", "time.sleep(50)")
        result = self.run_tests("--limit", "2", "--at-once", "2")
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertIn("slow_test: all of the first 7 cases have ended", result.stdout)

        self.add("slow_test", "pass")
        result = self.run_tests("--from", "7", "--at-once", "2")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("| `slow_test` | 3 | 3 | 0 | 0 |  |", result.stdout)
        log = (self.packed / "logs" / "slow_test.0.log").read_text()
        self.assertEqual([line[-1] for line in log.splitlines() if line.startswith("[ RUN")], ["7", "8", "9"])

    def test_counts_from_the_first_case_when_it_is_cut_off_again(self):
        self.add("slow_test", "time.sleep(50)")
        result = self.run_tests("--from", "5", "--limit", "2", "--at-once", "1")
        self.assertIn("slow_test: all of the first 7 cases have ended", result.stdout)

    def test_a_program_may_have_no_cases_left(self):
        self.add("good_test", "pass")
        result = self.run_tests("--from", "10")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("| `good_test` | 0 | 0 | 0 | 0 |  |", result.stdout)

    def test_refuses_to_begin_before_the_first_case_or_within_a_part(self):
        self.add("good_test", "pass")
        self.assertEqual(self.run_tests("--from", "-1").returncode, 2)
        self.assertEqual(self.run_tests("--from", "1", "--part", "1/2").returncode, 2)

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

    def test_runs_under_another_program_on_several_gpus(self):
        tool = self.packed / "tool"
        tool.write_text('#!/bin/bash\necho "GPU $CUDA_VISIBLE_DEVICES"; shift; "$@" && echo "========= ERROR SUMMARY: 0 errors"\n')
        tool.chmod(0o755)
        self.add("good_test", "pass")
        result = self.run_tests("--at-once", "2", "--gpus", "2", "--under", f"{tool} --flag")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        logs = "".join(log.read_text() for log in (self.packed / "logs").glob("*.log"))
        self.assertIn("GPU 0", logs)
        self.assertIn("GPU 1", logs)

    def test_what_a_sanitizer_finds_is_a_failure(self):
        self.add("found_test", 'print("========= Invalid __global__ read of size 4\\n=========     at kernel+0x10", flush=True)')
        result = self.run_tests("--at-once", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("found_test, shard 0: a sanitizer found something", result.stdout)
        self.assertIn("at kernel+0x10", result.stdout)

    def test_a_shard_that_needs_no_gpu_is_no_finding_of_a_sanitizer(self):
        self.add("fake_test", f'import atexit; print("========= {self.UNUSED}"); '
                 "atexit.register(lambda: (sys.stdout.flush(), os._exit(255)))")
        result = self.run_tests("--at-once", "1")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

        self.add("fake_test", f'print("========= {self.UNUSED}", flush=True); os.abort()')
        self.assertEqual(self.run_tests("--at-once", "1").returncode, 1)

    def test_a_crash_after_a_failed_case_is_shown_too(self):
        self.add("bad_test", FAILS.replace("sys.exit(1)", "sys.stdout.flush(); os.abort()"))
        result = self.run_tests("--at-once", "1")
        self.assertIn("bad_test: Suite.Case/7 failed", result.stdout)
        self.assertIn("exit code -6", result.stdout)

    def test_cases_that_did_not_run_are_a_failure(self):
        self.add("lazy_test", "os._exit(0)")
        result = self.run_tests("--at-once", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("lazy_test: 3 cases did not run", result.stdout)

    def test_stops_at_the_limit_with_what_a_program_has_started(self):
        self.add("slow_test", f"""
        import subprocess
        open("{self.packed}/child", "w").write(str(subprocess.Popen(["sleep", "50"]).pid)); time.sleep(50)""")
        result = self.run_tests("--limit", "2", "--at-once", "1")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("| `slow_test` | 10 | 7 | 0 | 0 | 3 (time) |", result.stdout)
        self.assertIn("stopped by the limit in slow_test: Suite.Case/7", result.stdout)
        self.assertFalse(self.runs(int((self.packed / "child").read_text())))

    def test_a_signal_stops_what_runs(self):
        self.add("slow_test", f"""
        open("{self.packed}/self", "w").write(str(os.getpid())); time.sleep(50)""")
        run = subprocess.Popen([RUN, self.packed, "--logs", self.packed / "logs", "--at-once", "1"], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not (self.packed / "self").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait(timeout=30), 143)
        self.assertFalse(self.runs(int((self.packed / "self").read_text())))

    @staticmethod
    def runs(pid):
        """Zombies, which nothing waits for in a container, do not count."""
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def test_refuses_what_it_cannot_run(self):
        self.assertEqual(self.run_tests().returncode, 2)  # no tests
        self.add("good_test", "pass")
        self.assertEqual(self.run_tests("other_test").returncode, 2)
        self.assertEqual(self.run_tests("good_test:a", "good_test:b").returncode, 2)
        self.assertEqual(self.run_tests("--at-once", "0").returncode, 2)
        (self.packed / "test" / "good_test").write_text("#!/bin/sh\necho libx.so is missing >&2\nexit 127\n")
        refused = self.run_tests("good_test")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("libx.so is missing", refused.stderr)


class PackTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "build" / "test").mkdir(parents=True)
        shutil.copy(shutil.which("true"), self.folder / "build" / "test" / "true_test")

    def pack(self, *arguments):
        return subprocess.run([PACK, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, RIVULET_GPU_BUILD=str(self.folder / "build")))

    def test_packs_into_the_callers_folder(self):
        result = self.pack("out.tar.xz", "true_test")
        self.assertEqual(result.returncode, 0, result.stderr)
        with tarfile.open(self.folder / "out.tar.xz") as archive:
            names = set(archive.getnames())
        self.assertLessEqual({"./test/true_test", "./commit"}, names)
        self.assertFalse([name for name in names if "libc.so" in name])

    def test_refuses_what_is_not_there(self):
        self.assertEqual(self.pack().returncode, 2)
        self.assertEqual(self.pack("out.tar.xz", "other_test").returncode, 2)
        self.assertEqual(self.pack("out.tar.xz").returncode, 2)  # the build has no GPU tests
        self.assertEqual([file.name for file in self.folder.iterdir()], ["build"])


if __name__ == "__main__":
    sys.exit(unittest.main())
