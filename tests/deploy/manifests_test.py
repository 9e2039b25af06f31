#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Renders every kustomization below deploy/kubernetes with `kubectl kustomize`, checks each object against the JSON schemas of the
oldest and the newest supported Kubernetes, and all of them with checks.py. Run by ctest in the environment that make_tools.py makes.

    manifests_test.py              prints each violation, and exits 1 when there is one
    manifests_test.py --self-test  plants violations one at a time and checks that each is found
"""

import copy
import dataclasses
import functools
import json
import pathlib
import subprocess
import sys

import kubernetes_validate
import yaml

import checks
import facts
import planted

KUBERNETES = facts.ROOT / "deploy/kubernetes"
# The first that has gRPC probes for good, and the newest that the schemas know.
VERSIONS = ("1.27", kubernetes_validate.latest_version())
# Checked by hand in checks.py.
CUSTOM_RESOURCES = {"ServiceMonitor"}


def render(folder):
    kubectl = pathlib.Path(sys.prefix) / "bin/kubectl"
    result = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False)
    if result.returncode != 0 or result.stderr:
        raise RuntimeError(f"kubectl kustomize {folder}: {result.stderr}")
    return list(yaml.safe_load_all(result.stdout))


# Slow, and in the self-test nearly always asked for the same object again.
@functools.cache
def schema_violation(text, version):
    item = json.loads(text)
    try:
        kubernetes_validate.validate(item, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{item['kind']}, schema of {version}: {'/'.join(map(str, error.path))}: {error.message[:300]}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return f"{item['kind']}: {error.message}"
    return None


def schema_violations(objects):
    texts = [json.dumps(item) for item in objects if item["kind"] not in CUSTOM_RESOURCES]
    return list(filter(None, (schema_violation(text, version) for text in texts for version in VERSIONS)))


def violations(rendered):
    found = schema_violations(rendered.objects)
    for check in checks.CHECKS:
        try:
            found += check(rendered)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            found.append(f"{check.__name__}: {type(error).__name__} {error}")
    return [f"{rendered.folder}: {text}" for text in found]


def gather():
    adapter = yaml.safe_load((KUBERNETES / "examples/prometheus-adapter/values.yaml").read_text(encoding="utf-8"))
    known = facts.gather((KUBERNETES / "base/config.json").read_text(encoding="utf-8"))
    folders = sorted(file.parent for file in KUBERNETES.rglob("kustomization.yaml"))
    return [checks.Rendered(folder.relative_to(KUBERNETES).as_posix(), render(folder), known, adapter) for folder in folders]


def self_test(rendered):
    base = next(item for item in rendered if item.folder == "base")
    failures = []
    for expected, plant in planted.VIOLATIONS:
        victim = dataclasses.replace(base, objects=copy.deepcopy(base.objects), facts=copy.deepcopy(base.facts),
                                     adapter=copy.deepcopy(base.adapter))
        plant(victim)
        found = violations(victim)
        if not any(expected in text for text in found):
            failures.append(f"planted but not found: {expected}; found instead: {found}")
    return failures


def main(arguments):
    rendered = gather()
    if arguments == ["--self-test"]:
        problems = self_test(rendered)
        done = f"{len(planted.VIOLATIONS)} planted violations were found"
    else:
        problems = [text for item in rendered for text in violations(item)]
        done = f"{sum(len(item.objects) for item in rendered)} objects of {len(rendered)} kustomizations, Kubernetes {', '.join(VERSIONS)}"
    print("\n".join(problems) if problems else f"manifests_test: all good: {done}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
