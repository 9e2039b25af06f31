# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Compiles the server's proto into rivulet/inference.binpb, a set of descriptors, while the package is built: code that protoc generates
would work with some versions of protobuf and grpcio only. In a checkout the proto is in proto/; a source distribution carries a copy.
Everything else is in pyproject.toml."""

import pathlib
import re
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROTO = pathlib.Path("rivulet/v1/inference.proto")
DESCRIPTORS = "rivulet/inference.binpb"
IN_CHECKOUT = (ROOT / "proto" / PROTO).exists()


def version():
    """The server's; in a source distribution, what its metadata say."""
    if IN_CHECKOUT:
        return re.search(r"project\(\w+ VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)
    return re.search(r"^Version: (.+)$", (HERE / "PKG-INFO").read_text(encoding="utf-8"), re.MULTILINE).group(1)


class BuildWithDescriptors(build_py):
    def run(self):
        super().run()
        from grpc_tools import protoc
        root = ROOT / "proto" if IN_CHECKOUT else HERE / "proto"
        if protoc.main(["protoc", f"-I{root}", f"--descriptor_set_out={self.build_lib}/{DESCRIPTORS}", str(root / PROTO)]) != 0:
            raise RuntimeError("protoc failed")


class SdistWithProto(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        target = pathlib.Path(base_dir) / "proto" / PROTO
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile((ROOT if IN_CHECKOUT else HERE) / "proto" / PROTO, target)


setup(version=version(), cmdclass={"build_py": BuildWithDescriptors, "sdist": SdistWithProto})
