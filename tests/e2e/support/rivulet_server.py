# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The real rivulet-server, for tests in Python."""

import os
import pathlib
import subprocess
import threading

SOURCE = pathlib.Path(os.environ.get("RIVULET_SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[3])
BINARIES = pathlib.Path(os.environ.get("RIVULET_BIN_DIR") or SOURCE / "build/release/bin")
TALES = SOURCE / "models/tales"


class Server:
    """rivulet-server with ports of the kernel's choice, or with this one for HTTP. `log` has the lines that it wrote so far; `http` and
    `grpc` are its addresses."""

    def __init__(self, model=TALES, *flags, http_port=0):
        command = [BINARIES / "rivulet-server", f"--model={model}", "--listen=127.0.0.1:0", f"--http=127.0.0.1:{http_port}", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log = []
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self._reader.start()
        self.http = self._address("http listening on ")
        self.grpc = self._address("grpc listening on ")

    def _address(self, marker):
        for line in self.process.stdout:
            if line.startswith(marker):
                return line.removeprefix(marker).strip()
        self.stop()
        raise RuntimeError("the server did not start: " + "".join(self.log))

    def stop(self):
        """The exit code."""
        self.process.terminate()
        return self.ended()

    def kill(self):
        self.process.kill()
        return self.ended()

    def ended(self):
        """Waits for its end. The exit code."""
        code = self.process.wait(60)
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code
