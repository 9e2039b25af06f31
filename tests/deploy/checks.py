# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Checks of a rendered set of manifests that go beyond Kubernetes' schemas: its parts agree with each other, with the image and with
the server. Every function of CHECKS takes a Rendered and yields each violation as text."""

import dataclasses
import json
import re

import facts as repository

# Between the server's own deadline and the kubelet's SIGKILL.
MARGIN_SECONDS = 5
# For connections, buffers and activations, beside states and weights.
MARGIN_BYTES = 256 << 20
STARTUP_SECONDS = 300


@dataclasses.dataclass
class Rendered:
    folder: str  # below deploy/kubernetes
    objects: list
    facts: repository.Facts
    adapter: dict  # the prometheus-adapter's values

    def of(self, kind):
        return [item for item in self.objects if item["kind"] == kind]

    @property
    def deployment(self):
        return self.of("Deployment")[0]

    @property
    def pod(self):
        return self.deployment["spec"]["template"]["spec"]

    @property
    def server(self):
        return self.pod["containers"][0]

    @property
    def pod_labels(self):
        return self.deployment["spec"]["template"]["metadata"]["labels"]

    @property
    def ports(self):
        return {port["name"]: port["containerPort"] for port in self.server["ports"]}

    @property
    def config_map(self):
        """The one that is mounted; without data when it is not among the objects."""
        names = [volume["configMap"]["name"] for volume in self.pod["volumes"] if "configMap" in volume]
        return next((item for item in self.of("ConfigMap") if item["metadata"]["name"] in names), {"data": {}})

    @property
    def config(self):
        return json.loads(self.config_map["data"].get("config.json", "{}"))


    @property
    def cuda(self):
        return self.config.get("device") == "cuda"

    @property
    def dockerfile(self):
        return self.facts.cuda_dockerfile if self.cuda else self.facts.dockerfile


def selects(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


def quantity(text):
    """A Kubernetes quantity or a size as --state-memory takes it, as a number."""
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    units = {"": 1, "m": 1e-3, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
    return float(number) * units[unit.removesuffix("B")]


def check_kinds(rendered):
    kinds = [item["kind"] for item in rendered.objects]
    wanted = ["Deployment", "ConfigMap", "PodDisruptionBudget"]
    if rendered.folder == "base":
        wanted += ["HorizontalPodAutoscaler", "ServiceMonitor"]
        if any("namespace" in item["metadata"] for item in rendered.objects):
            yield "the base names a namespace, which is an overlay's to choose"
    for kind in wanted:
        if kinds.count(kind) != 1:
            yield f"{kinds.count(kind)} objects of kind {kind}, expected 1"


def check_selectors(rendered):
    for item in rendered.of("Deployment") + rendered.of("PodDisruptionBudget"):
        if not selects(item["spec"]["selector"].get("matchLabels"), rendered.pod_labels):
            yield f"{item['kind']}: its selector does not match the pods' labels"
    for service in rendered.of("Service"):
        if not selects(service["spec"].get("selector"), rendered.pod_labels):
            yield f"Service {service['metadata']['name']}: its selector does not match the pods' labels"
    for constraint in rendered.pod.get("topologySpreadConstraints", []):
        if not selects(constraint["labelSelector"].get("matchLabels"), rendered.pod_labels):
            yield "topologySpreadConstraints: the selector does not match the pods' labels"


def check_ports(rendered):
    """The pods' ports are the server's."""
    config = rendered.config
    wanted = {
        "grpc": int(config["listen"].rsplit(":", 1)[1]) if "listen" in config else rendered.facts.grpc_port,
        "http": int(config["http"].rsplit(":", 1)[1]) if "http" in config else rendered.facts.http_port,
    }
    if rendered.ports != wanted:
        yield f"container ports {rendered.ports}, but the server listens on {wanted}"


def check_probes(rendered):
    server = rendered.server
    tls = "tls-cert" in rendered.config
    by_http = [("startupProbe", "/readyz"), ("livenessProbe", "/healthz")]
    if tls:  # the kubelet's gRPC probes speak no TLS
        by_http.append(("readinessProbe", "/readyz"))
    for name, path in by_http:
        request = server.get(name, {}).get("httpGet", {})
        if request.get("path") != path or rendered.facts.paths.get(path) != 200:
            yield f"{name}: expected HTTP {path}, which a ready server answers with 200"
        if request.get("port") not in ("http", rendered.ports.get("http")):
            yield f"{name}: port {request.get('port')} is not the HTTP port"
        if request.get("scheme", "HTTP") != ("HTTPS" if tls else "HTTP"):
            yield f"{name}: its scheme is not the server's"
    if not tls and server.get("readinessProbe", {}).get("grpc", {}).get("port") != rendered.ports.get("grpc"):
        yield "readinessProbe: expected gRPC health on the gRPC port"
    startup = server.get("startupProbe", {})
    seconds = startup.get("periodSeconds", 10) * startup.get("failureThreshold", 3)
    if seconds < STARTUP_SECONDS:
        yield f"startupProbe: {seconds} s to load a model, expected at least {STARTUP_SECONDS}"


def pre_stop_seconds(rendered):
    command = rendered.server.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    return int(command[1]) if command[0] == "sleep" else 0


def check_grace(rendered):
    """The kubelet waits until the server has drained by itself."""
    drain = rendered.config.get("drain-seconds")
    if drain is None:
        yield "config.json: drain-seconds is missing, so nothing says how long the grace period must be"
        return
    needed = pre_stop_seconds(rendered) + drain + rendered.facts.flush_seconds + MARGIN_SECONDS
    grace = rendered.pod.get("terminationGracePeriodSeconds", 30)
    if grace < needed:
        yield (f"terminationGracePeriodSeconds {grace}: at least {needed} = preStop {pre_stop_seconds(rendered)} + drain-seconds "
               f"{drain} + flush {rendered.facts.flush_seconds} + margin {MARGIN_SECONDS}")
    if pre_stop_seconds(rendered) == 0:
        yield "preStop: expected a sleep, so that nodes stop sending connections before the server drains"


def check_security(rendered):
    pod, server = rendered.pod.get("securityContext", {}), rendered.server.get("securityContext", {})
    wanted = {
        "runAsNonRoot": pod.get("runAsNonRoot") is True,
        "seccompProfile RuntimeDefault": pod.get("seccompProfile", {}).get("type") == "RuntimeDefault",
        "readOnlyRootFilesystem": server.get("readOnlyRootFilesystem") is True,
        "allowPrivilegeEscalation: false": server.get("allowPrivilegeEscalation") is False,
        "capabilities: drop ALL": server.get("capabilities") == {"drop": ["ALL"]},
        "automountServiceAccountToken: false": rendered.pod.get("automountServiceAccountToken") is False,
    }
    for name, holds in wanted.items():
        if not holds:
            yield f"securityContext: expected {name}"


def check_image(rendered):
    """The pods' image is the one that deploy/Dockerfile makes, or Dockerfile.cuda."""
    facts, dockerfile = rendered.facts, rendered.dockerfile
    user = re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    context = rendered.pod.get("securityContext", {})
    if user[-1:] != [f"{context.get('runAsUser')}:{context.get('runAsGroup')}"] or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", user[-1]):
        yield f"USER {user} in the Dockerfile and runAsUser, runAsGroup must be the same numbers, not root's"
    tag = rendered.server["image"].rpartition(":")[2]
    label = re.search(r'image\.version="([^"]*)"', dockerfile)
    version = facts.version + ("-cuda" if rendered.cuda else "")
    if not tag == version == (label and label.group(1)):
        yield f"image {rendered.server['image']}, label {label and label.group(1)} and the project's version {version} differ"
    exposed = re.search(r"^EXPOSE (.*)$", dockerfile, re.MULTILINE)
    if exposed is None or exposed.group(1).split() != [str(facts.grpc_port), str(facts.http_port)]:
        yield "EXPOSE in the Dockerfile: expected the server's default ports"
    if f'"--model={repository.SHARE}models/{repository.MODEL.name}"' not in dockerfile:
        yield "CMD in the Dockerfile: expected the bundled model"


def stage(dockerfile):
    """The instructions of the image's last stage, without those that a GPU changes."""
    lines = re.split(r"^FROM .*$", dockerfile, flags=re.MULTILINE)[-1].splitlines()
    changed = ("#", "ENV LD_LIBRARY_PATH", "CMD", "      org.opencontainers.image.version", "      org.opencontainers.image.base")
    return [line for line in lines if line and not line.startswith(changed)]


def check_cuda_image(rendered):
    """Dockerfile.cuda is Dockerfile with a GPU."""
    facts = rendered.facts
    if stage(facts.dockerfile) != stage(facts.cuda_dockerfile):
        different = set(stage(facts.dockerfile)) ^ set(stage(facts.cuda_dockerfile))
        yield f"the last stages of Dockerfile and Dockerfile.cuda differ: {sorted(different)}"
    if '"--device=cuda"' not in facts.cuda_dockerfile:
        yield "CMD in Dockerfile.cuda: expected --device=cuda"
    for needed in ("--preset cuda", "libcublasLt.so.13", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"):
        if needed not in facts.cuda_dockerfile:
            yield f"Dockerfile.cuda: expected {needed}"


def check_gpu(rendered):
    """A server on a GPU gets one and may run where they are; another one takes none."""
    resources = rendered.server["resources"]
    wanted = "1" if rendered.cuda else None
    for kind in ("requests", "limits"):
        if resources[kind].get("nvidia.com/gpu") != wanted:
            yield f"{kind}: nvidia.com/gpu is {resources[kind].get('nvidia.com/gpu')}, but device is {rendered.config.get('device', 'cpu')}"
    tolerated = [item["key"] for item in rendered.pod.get("tolerations", []) if item.get("effect") == "NoSchedule"]
    if rendered.cuda and "nvidia.com/gpu" not in tolerated:
        yield "tolerations: expected nvidia.com/gpu"


def check_config(rendered):
    """The config file is mounted where --config says, and the server takes it."""
    text = rendered.config_map["data"].get("config.json")
    folders = [mount["mountPath"] for mount in rendered.server.get("volumeMounts", [])]
    if text is None:
        yield "no mounted ConfigMap has a config.json"
        return
    if not any(f"--config={folder}/config.json" in rendered.server.get("args", []) for folder in folders):
        yield "args: --config does not name config.json in a volume"
    error = repository.config_error(text)
    if error:
        yield f"config.json: {error}"
    model = rendered.config.get("model", "")
    if model.removeprefix(repository.SHARE) != f"models/{repository.MODEL.name}" and not any(
            model.startswith(folder + "/") for folder in folders):
        yield f"config.json: the model {model} is neither in the image nor in a volume"
    for flag in ("listen", "http"):
        if rendered.config.get(flag, "127.0.0.1").startswith(("127.", "localhost", "[::1]")):
            yield f"config.json: {flag} is on loopback, where neither other pods nor probes reach it"


def check_packed_cache(rendered):
    """Packed weights are kept in a volume that the server may write to, apart from the models, and not for a GPU."""
    folder = rendered.config.get("packed-cache")
    if folder is None:
        return
    if rendered.cuda:
        yield "config.json: packed-cache, which --device cuda does not use"
    mounts = [mount for mount in rendered.server.get("volumeMounts", []) if (folder + "/").startswith(mount["mountPath"] + "/")]
    if not mounts or mounts[0].get("readOnly"):
        yield f"config.json: packed-cache {folder} is not in a volume that the server may write to"
        return
    volume = next(volume for volume in rendered.pod["volumes"] if volume["name"] == mounts[0]["name"])
    group = rendered.pod.get("securityContext", {}).get("fsGroup")
    if "emptyDir" not in volume and group != rendered.pod["securityContext"].get("runAsGroup"):
        yield f"fsGroup {group}: the volume of packed-cache belongs to root, so the server's group must be given"


def check_resources(rendered):
    config, resources = rendered.config, rendered.server["resources"]
    if quantity(resources["requests"]["cpu"]) != config.get("threads"):
        yield f"cpu request {resources['requests']['cpu']}, but config.json has {config.get('threads')} threads"
    if "cpu" in resources.get("limits", {}):
        yield "a cpu limit throttles single threads of a step, and all wait for them"
    states = 0 if rendered.cuda else quantity(config.get("state-memory", "1GiB"))
    needed = states + rendered.facts.weight_bytes + MARGIN_BYTES
    if quantity(resources["limits"]["memory"]) < needed:
        yield f"memory limit {resources['limits']['memory']}: state-memory, weights and margin are {needed / (1 << 20):.0f}Mi"
    if resources["limits"]["memory"] != resources["requests"]["memory"]:
        yield "memory request and limit differ: states fill it sooner or later"


def check_services(rendered):
    services = {item["metadata"]["name"]: item["spec"] for item in rendered.of("Service")}
    for name, spec in services.items():
        for port in spec["ports"]:
            target = port.get("targetPort")
            if port["name"] != target or port["port"] != rendered.ports.get(target):
                yield f"Service {name}: port {port['name']} {port['port']} → {target} is not one of the pods' {rendered.ports}"
            if not port.get("appProtocol"):
                yield f"Service {name}: port {port['name']} has no appProtocol"
    if sorted(spec.get("clusterIP") == "None" for spec in services.values()) != [False, True]:
        yield "expected one Service with an address and one headless"
    affinity = [spec.get("sessionAffinityConfig", {}).get("clientIP", {}).get("timeoutSeconds") for spec in services.values()
                if spec.get("sessionAffinity") == "ClientIP"]
    if affinity != [rendered.config.get("session-ttl")]:
        yield f"sessionAffinity lasts {affinity}, but an idle session session-ttl = {rendered.config.get('session-ttl')} s"


def check_replicas(rendered):
    scaled = bool(rendered.of("HorizontalPodAutoscaler"))
    if scaled == ("replicas" in rendered.deployment["spec"]):
        yield "replicas: set by the autoscaler or by the Deployment, by one of them"
    update = rendered.deployment["spec"]["strategy"]["rollingUpdate"]
    without_spare_gpu = rendered.cuda and update == {"maxSurge": 0, "maxUnavailable": 1}
    if update.get("maxUnavailable") != 0 and not without_spare_gpu:
        yield "rollingUpdate: expected maxUnavailable 0" + (", or 1 with maxSurge 0" if rendered.cuda else "")
    if any(item["spec"].get("maxUnavailable") != 1 for item in rendered.of("PodDisruptionBudget")):
        yield "PodDisruptionBudget: expected maxUnavailable 1, which also lets a single pod be moved"


def adapter_serves(adapter, metric):
    queries = (rule["seriesQuery"] for rule in adapter["rules"]["custom"])
    return any(re.search(re.search(r'__name__=~"([^"]*)"', query).group(1), metric) for query in queries)


def check_autoscaler(rendered):
    for autoscaler in rendered.of("HorizontalPodAutoscaler"):
        spec = autoscaler["spec"]
        target = {key: spec["scaleTargetRef"][key] for key in ("apiVersion", "kind")}, spec["scaleTargetRef"]["name"]
        actual = {key: rendered.deployment[key] for key in ("apiVersion", "kind")}, rendered.deployment["metadata"]["name"]
        if target != actual:
            yield f"HorizontalPodAutoscaler: scales {target}, not {actual}"
        if not 2 <= spec.get("minReplicas", 1) <= spec["maxReplicas"]:
            yield "HorizontalPodAutoscaler: expected at least 2 replicas, so that one can go"
        for metric in (metric["pods"]["metric"]["name"] for metric in spec["metrics"]):
            if metric not in rendered.facts.gauges:
                yield f"HorizontalPodAutoscaler: the server's /metrics has no gauge {metric}"
            if not adapter_serves(rendered.adapter, metric):
                yield f"HorizontalPodAutoscaler: no rule in examples/prometheus-adapter serves {metric}"


# ServiceMonitor is a custom resource: Kubernetes' schemas do not have it, so its shape is checked here too.
MONITOR_FIELDS = {"selector", "endpoints", "namespaceSelector", "jobLabel", "targetLabels", "podTargetLabels", "sampleLimit"}
ENDPOINT_FIELDS = {"port", "path", "interval", "scrapeTimeout", "scheme", "tlsConfig", "authorization", "honorLabels",
                   "relabelings", "metricRelabelings"}


def check_monitor(rendered):
    for monitor in rendered.of("ServiceMonitor"):
        spec = monitor["spec"]
        if monitor["apiVersion"] != "monitoring.coreos.com/v1":
            yield f"ServiceMonitor: apiVersion {monitor['apiVersion']}"
        for name in set(spec) - MONITOR_FIELDS:
            yield f"ServiceMonitor: unknown field {name}"
        services = [item for item in rendered.of("Service")
                    if selects(spec["selector"].get("matchLabels"), item["metadata"].get("labels", {}))]
        if len(services) != 1:
            yield f"ServiceMonitor: its selector matches {len(services)} Services; with 2 every pod would be scraped twice"
        names = {port["name"] for service in services for port in service["spec"]["ports"]}
        for endpoint in spec["endpoints"]:
            for name in set(endpoint) - ENDPOINT_FIELDS:
                yield f"ServiceMonitor: unknown field {name} of an endpoint"
            if endpoint.get("port") not in names:
                yield f"ServiceMonitor: the Service has no port {endpoint.get('port')}"
            if rendered.facts.paths.get(endpoint.get("path")) != 200:
                yield f"ServiceMonitor: the server does not answer {endpoint.get('path')}"


CHECKS = [check_kinds, check_selectors, check_ports, check_probes, check_grace, check_security, check_image,
          check_cuda_image, check_gpu, check_config, check_packed_cache,
          check_resources, check_services, check_replicas, check_autoscaler, check_monitor]
