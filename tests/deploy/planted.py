# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Violations for manifests_test.py --self-test: what must be reported, and a function that plants it into the rendered base."""

import json


def one(rendered, kind, name=None):
    return next(item for item in rendered.of(kind) if name in (None, item["metadata"]["name"]))


def set_in(kind, path, value, name=None):
    """A planter that sets a value in the object of that kind; None removes it."""
    def plant(rendered):
        place = one(rendered, kind, name)
        for step in path[:-1]:
            place = place[step]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    return plant


def in_pod(*path, value=None):
    return set_in("Deployment", ("spec", "template", "spec", *path), value)


def in_server(*path, value=None):
    return in_pod("containers", 0, *path, value=value)


def in_config(**settings):
    def plant(rendered):
        data = rendered.config_map["data"]
        data["config.json"] = json.dumps({**json.loads(data["config.json"]), **settings})
    return plant


def on_gpus_with_update(update):
    def plant(rendered):
        in_config(device="cuda")(rendered)
        set_in("Deployment", ("spec", "strategy", "rollingUpdate"), update)(rendered)
    return plant


def without_config(key):
    def plant(rendered):
        config = rendered.config
        del config[key]
        rendered.config_map["data"]["config.json"] = json.dumps(config)
    return plant


def with_packed_cache(volume):
    """A planter that mounts the volume, and has packed weights kept there."""
    def plant(rendered):
        in_config(**{"packed-cache": "/cache"})(rendered)
        rendered.server["volumeMounts"].append({"name": "cache", "mountPath": "/cache"})
        rendered.pod["volumes"].append({"name": "cache", **volume})
    return plant


def in_dockerfile(old, new):
    def plant(rendered):
        assert old in rendered.facts.dockerfile, f"planted.py: the Dockerfile has no {old}"
        rendered.facts.dockerfile = rendered.facts.dockerfile.replace(old, new)
    return plant


def in_cuda_dockerfile(old, new):
    def plant(rendered):
        assert old in rendered.facts.cuda_dockerfile, f"planted.py: Dockerfile.cuda has no {old}"
        rendered.facts.cuda_dockerfile = rendered.facts.cuda_dockerfile.replace(old, new)
    return plant


def in_facts(name, value):
    return lambda rendered: setattr(rendered.facts, name, value)


def drop(kind, name=None):
    return lambda rendered: rendered.objects.remove(one(rendered, kind, name))


def break_adapter(rendered):
    rendered.adapter["rules"]["custom"][0]["seriesQuery"] = '{__name__=~"^rivulet_state_slot_usage_ratio$"}'


LABEL = ("spec", "selector", "matchLabels")
PROBE = ("livenessProbe", "httpGet")
METRIC = ("spec", "metrics", 0, "pods", "metric", "name")
MONITOR = ("spec", "endpoints", 0)
SECURITY = "securityContext"
OTHER = {"app.kubernetes.io/name": "other"}

VIOLATIONS = [
    # Kubernetes' schemas: an unknown field, a missing one, a wrong type, a name where gRPC probes need a number, an old version.
    ("schema of 1.27: spec/template/spec/containers/0/livenessProbe", in_server("livenessProbe", "period", value=3)),
    ("schema of 1.27: spec", set_in("Deployment", ("spec", "selector"), None)),
    ("schema of 1.27: spec/maxReplicas", set_in("HorizontalPodAutoscaler", ("spec", "maxReplicas"), "eight")),
    ("schema of 1.27: spec/template/spec/containers/0/readinessProbe/grpc/port", in_server("readinessProbe", "grpc", "port", value="grpc")),
    ("Couldn't find schema", set_in("HorizontalPodAutoscaler", ("apiVersion",), "autoscaling/v2beta2")),
    # check_kinds
    ("0 objects of kind ServiceMonitor", drop("ServiceMonitor")),
    ("0 objects of kind PodDisruptionBudget", drop("PodDisruptionBudget")),
    ("names a namespace", set_in("Service", ("metadata", "namespace"), "default")),
    # check_selectors
    ("Deployment: its selector", set_in("Deployment", LABEL, OTHER)),
    ("PodDisruptionBudget: its selector", set_in("PodDisruptionBudget", LABEL, OTHER)),
    ("Service rivulet-pods: its selector", set_in("Service", ("spec", "selector"), OTHER, "rivulet-pods")),
    ("topologySpreadConstraints", in_pod("topologySpreadConstraints", 0, "labelSelector", "matchLabels", value=OTHER)),
    # check_ports
    ("container ports", in_server("ports", 0, "containerPort", value=8600)),
    ("container ports", in_config(http="0.0.0.0:9000")),
    ("http is on loopback", without_config("http")),
    ("--insecure", without_config("insecure")),
    # check_probes
    ("livenessProbe: expected HTTP /healthz", in_server(*PROBE, "path", value="/readyz")),
    ("livenessProbe: port", in_server(*PROBE, "port", value="grpc")),
    ("startupProbe: expected HTTP /readyz", in_facts("paths", {"/healthz": 200, "/metrics": 200, "/readyz": 404})),
    ("livenessProbe: its scheme", in_server(*PROBE, "scheme", value="HTTPS")),
    ("startupProbe: 20 s to load", in_server("startupProbe", "failureThreshold", value=10)),
    ("readinessProbe: expected gRPC", in_server("readinessProbe", "grpc", "port", value=8591)),
    # check_grace
    ("terminationGracePeriodSeconds 30", in_pod("terminationGracePeriodSeconds", value=30)),
    ("terminationGracePeriodSeconds 45", in_config(**{"drain-seconds": 120})),
    ("terminationGracePeriodSeconds 45", in_facts("flush_seconds", 20)),
    ("terminationGracePeriodSeconds 45", in_server("lifecycle", "preStop", "exec", "command", value=["sleep", "20"])),
    ("preStop: expected a sleep", in_server("lifecycle")),
    ("drain-seconds is missing", without_config("drain-seconds")),
    # check_security
    ("expected runAsNonRoot", in_pod(SECURITY, "runAsNonRoot")),
    ("expected seccompProfile", in_pod(SECURITY, "seccompProfile", value={"type": "Unconfined"})),
    ("expected readOnlyRootFilesystem", in_server(SECURITY, "readOnlyRootFilesystem", value=False)),
    ("expected allowPrivilegeEscalation", in_server(SECURITY, "allowPrivilegeEscalation")),
    ("expected capabilities", in_server(SECURITY, "capabilities", "add", value=["NET_BIND_SERVICE"])),
    ("expected automountServiceAccountToken", in_pod("automountServiceAccountToken")),
    # check_image
    ("runAsUser, runAsGroup must be the same", in_dockerfile("USER 65532:65532", "USER 65533:65533")),
    ("not root's", in_dockerfile("USER 65532:65532", "USER 0:0")),
    ("project's version", in_server("image", value="rivulet:latest")),
    ("project's version", in_facts("version", "9.9.9")),
    ("project's version", in_dockerfile('image.version="0', 'image.version="8')),
    ("EXPOSE", in_dockerfile("EXPOSE 8590 8591", "EXPOSE 80")),
    ("CMD", in_dockerfile("/models/tales", "/models/other")),
    # check_cuda_image
    ("Dockerfile and Dockerfile.cuda differ", in_dockerfile("STOPSIGNAL SIGTERM", "STOPSIGNAL SIGQUIT")),
    ("expected --device=cuda", in_cuda_dockerfile('"--device=cuda", ', "")),
    ("expected libcublasLt.so.13", in_cuda_dockerfile("libcublasLt.so.13", "libcublasLt.so.12")),
    # check_gpu
    ("requests: nvidia.com/gpu is None, but device is cuda", in_config(device="cuda")),
    ("limits: nvidia.com/gpu is 1, but device is cpu", in_server("resources", "limits", "nvidia.com/gpu", value="1")),
    ("tolerations: expected nvidia.com/gpu", in_config(device="cuda")),
    # check_config
    ("it can set values of", in_config(**{"max-queues": 3})),
    ("give bytes, or a number", in_config(**{"state-memory": "lots"})),
    ("neither in the image nor in a volume", in_config(model="/models/own")),
    ("args: --config", in_server("args", value=["--config=/etc/config.json"])),
    ("no mounted ConfigMap", set_in("ConfigMap", ("metadata", "name"), "rivulet-config-other")),
    # check_packed_cache
    ("packed-cache /cache is not in a volume", in_config(**{"packed-cache": "/cache"})),
    ("packed-cache /etc/rivulet is not in a volume", in_config(**{"packed-cache": "/etc/rivulet"})),
    ("packed-cache, which --device cuda", in_config(**{"packed-cache": "/cache", "device": "cuda"})),
    ("fsGroup None", with_packed_cache({"persistentVolumeClaim": {"claimName": "packed-weights"}})),
    # check_resources
    ("cpu request", in_config(threads=3)),
    ("a cpu limit", in_server("resources", "limits", "cpu", value="2")),
    ("memory limit", in_config(**{"state-memory": "2GiB"})),
    ("request and limit differ", in_server("resources", "requests", "memory", value="1Gi")),
    # check_services
    ("is not one of the pods'", set_in("Service", ("spec", "ports", 0, "targetPort"), "web", "rivulet")),
    ("has no appProtocol", set_in("Service", ("spec", "ports", 0, "appProtocol"), None, "rivulet")),
    ("one headless", drop("Service", "rivulet-pods")),
    ("sessionAffinity lasts", in_config(**{"session-ttl": 60})),
    # check_replicas
    ("by one of them", set_in("Deployment", ("spec", "replicas"), 3)),
    ("expected maxUnavailable 0", set_in("Deployment", ("spec", "strategy", "rollingUpdate", "maxUnavailable"), 1)),
    ("expected maxUnavailable 0, or 1 with maxSurge 0", on_gpus_with_update({"maxSurge": 1, "maxUnavailable": 1})),
    ("expected maxUnavailable 0, or 1 with maxSurge 0", on_gpus_with_update({"maxSurge": 0, "maxUnavailable": 2})),
    ("expected maxUnavailable 1", set_in("PodDisruptionBudget", ("spec",), {"minAvailable": 1})),
    # check_autoscaler
    ("HorizontalPodAutoscaler: scales", set_in("HorizontalPodAutoscaler", ("spec", "scaleTargetRef", "name"), "server")),
    ("at least 2 replicas", set_in("HorizontalPodAutoscaler", ("spec", "minReplicas"), 1)),
    ("has no gauge rivulet_requests_total", set_in("HorizontalPodAutoscaler", METRIC, "rivulet_requests_total")),
    ("no rule in examples/prometheus-adapter serves rivulet_requests_waiting", break_adapter),
    # check_monitor
    ("ServiceMonitor: apiVersion", set_in("ServiceMonitor", ("apiVersion",), "monitoring.coreos.com/v2")),
    ("unknown field endpoint", set_in("ServiceMonitor", ("spec", "endpoint"), [])),
    ("unknown field intervall", set_in("ServiceMonitor", (*MONITOR, "intervall"), "15s")),
    ("matches 2 Services", set_in("Service", ("metadata", "labels"), {"app.kubernetes.io/name": "rivulet"}, "rivulet-pods")),
    ("the Service has no port metrics", set_in("ServiceMonitor", (*MONITOR, "port"), "metrics")),
    ("does not answer /stats", set_in("ServiceMonitor", (*MONITOR, "path"), "/stats")),
]
