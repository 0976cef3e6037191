#!/usr/bin/env python3
"""Makes an image for containers (OCI image layout 1.0, in a tar) of root directories, one layer each. No daemon is needed.

    oci.py VERSION SECONDS INTO ROOT...

SECONDS since 1970 are the image's date, and of all files that are newer. `podman load`, `skopeo copy oci-archive:INTO ...` and
`ctr image import` read it.
"""

import gzip
import hashlib
import io
import json
import pathlib
import platform
import sys
import tarfile
from datetime import datetime, timezone

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
IMAGE = "application/vnd.oci.image"


def tar_of(root: pathlib.Path, seconds: int) -> bytes:
    """All of a directory, in an order and with dates that do not depend on when it was made."""

    def as_it_goes_in(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uname = entry.gname = ""
        entry.mtime = min(int(entry.mtime), seconds)
        return entry

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(root.rglob("*")):
            # Devices are the runtime's.
            if path.is_symlink() or path.is_dir() or path.is_file():
                tar.add(path, path.relative_to(root).as_posix(), recursive=False, filter=as_it_goes_in)
    return made.getvalue()


class Layout:
    """The blobs of an image, by their digests."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def add(self, data: bytes, kind: str) -> dict[str, object]:
        """Gives the descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return {"mediaType": f"{IMAGE}.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(self, value: object, kind: str) -> dict[str, object]:
        return self.add(json.dumps(value, sort_keys=True).encode(), kind)

    def write(self, into: str, index: object, seconds: int) -> None:
        files = {f"blobs/sha256/{digest}": data for digest, data in self.blobs.items()}
        files["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
        files["index.json"] = json.dumps(index, sort_keys=True).encode()
        with tarfile.open(into, "w") as tar:
            for name, data in sorted(files.items()):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime, entry.mode = len(data), seconds, 0o644
                tar.addfile(entry, io.BytesIO(data))


def main(version: str, seconds: int, into: str, roots: list[str]) -> None:
    layout, layers, unpacked = Layout(), [], []
    for root in roots:
        tar = tar_of(pathlib.Path(root), seconds)
        unpacked.append("sha256:" + hashlib.sha256(tar).hexdigest())
        layers.append(layout.add(gzip.compress(tar, 9, mtime=0), "layer.v1.tar+gzip"))
    created = datetime.fromtimestamp(seconds, timezone.utc).isoformat()
    machine = MACHINES[platform.machine()]
    config = {
        "created": created,
        "architecture": machine,
        "os": "linux",
        "config": {
            "Entrypoint": ["commonhold"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": unpacked},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{IMAGE}.manifest.v1+json",
        "config": layout.add_json(config, "config.v1+json"),
        "layers": layers,
        "annotations": {"org.opencontainers.image.version": version, "org.opencontainers.image.created": created},
    }
    described = layout.add_json(manifest, "manifest.v1+json")
    described["platform"] = {"architecture": machine, "os": "linux"}
    described["annotations"] = {"org.opencontainers.image.ref.name": version}
    index = {"schemaVersion": 2, "mediaType": f"{IMAGE}.index.v1+json", "manifests": [described]}
    layout.write(into, index, seconds)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
