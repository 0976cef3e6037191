"""The Helm chart with its own values is what the manifests say, but for the name space: chart.py MANIFESTS RENDERED"""

import sys

import yaml


def objects(path: str) -> dict[tuple[str, str], object]:
    with open(path) as file:
        found = [one for one in yaml.safe_load_all(file) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


manifests, rendered = objects(sys.argv[1]), objects(sys.argv[2])
del manifests["Namespace", "commonhold"]
if manifests != rendered:
    sys.exit("the chart is not what the manifests say:\n" + yaml.safe_dump([manifests, rendered]))
