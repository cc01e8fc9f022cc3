"""The manifests of examples/serve name what there is: ports, paths, options, volumes."""

import json
import re
from pathlib import Path

from sfumato.cli import serve
from sfumato.serve.web.api import read_description

ROOT = Path(__file__).resolve().parents[2]


def test_the_kubernetes_manifests_fit_the_image_and_each_other():
    items = json.loads((ROOT / "examples" / "serve" / "kubernetes.json").read_text())["items"]
    claim, deployment, service = items
    assert [each["kind"] for each in items] == ["PersistentVolumeClaim", "Deployment", "Service"]
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    labels = spec["template"]["metadata"]["labels"]
    assert labels == spec["selector"]["matchLabels"] == service["spec"]["selector"]
    # Several servers on one folder need it at once; what they share besides is in the ledger's database.
    assert spec["replicas"] > 1
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert {each["name"] for each in container["volumeMounts"]} == set(volumes)
    assert volumes["project"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    image = (ROOT / "Dockerfile").read_text()
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert sorted(ports.values()) == sorted(map(int, re.search(r"EXPOSE (.*)", image)[1].split()))
    assert {each["targetPort"] for each in service["spec"]["ports"]} == set(ports)
    assert str(pod["securityContext"]["runAsUser"]) in image
    assert container["securityContext"]["readOnlyRootFilesystem"]
    for probe in ("readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["path"] in read_description()["paths"]
        assert asked["port"] in ports
    assert container["args"][0] == serve.serve.__name__
    assert {"host", "json"} <= {each.removeprefix("--") for each in container["args"]}
