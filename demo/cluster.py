"""Three hosts share one object: a program on each counts texts into it, and one host is killed with all that it runs.

Usage: cluster.py WORK LETTERS_PROGRAM COMMONHOLD_PROGRAM. Each host has a network namespace and a certificate of its own, as
between machines (docs/CLUSTER.md); where namespaces are not allowed, a port."""

import json
import os
import signal
import subprocess
import sys
import time

import commonhold as ch
import numpy as np
from layout import DOCUMENT_BYTES
from network import network
from prepare import texts

NAME, PAGE, BATCH, PATIENCE_S = "/demo/letters", 4096, 8, 100
LEASE_S = 2
HOSTS = ["alpha", "beta", "gamma"]


class Cluster:
    def __init__(self, work, program, commonhold):
        self.work, self.program, self.commonhold = work, program, commonhold
        self.states = {name: os.path.join(work, name) for name in HOSTS}
        self.programs = {}
        self.network = network(HOSTS)
        self.end = time.monotonic() + PATIENCE_S

    def start(self):
        authority = os.path.join(self.work, "authority")
        self.certificate("init", "--dir", authority)
        for name, state in self.states.items():
            identity = os.path.join(self.work, f"identity-{name}")
            self.certificate("issue", name, "--dir", authority, "--into", identity)
            place = ["--listen", self.network.addresses[name], "--identity", identity]
            place += ["--lease", str(LEASE_S)] if name == HOSTS[0] else ["--join", self.network.addresses[HOSTS[0]]]
            self.run(name, "host", "start", "--quiet", "--state", state, "--name", name, *place)
        while len(self.hosts()) < len(HOSTS):
            self.pause("three hosts in the cluster")
        print(f"   three hosts, each with a certificate; between them: {self.network.words}", flush=True)

    def certificate(self, *words):
        subprocess.run([self.commonhold, "ca", *words], check=True, capture_output=True)

    def run(self, name, *words):
        """A command where that host is; gives what it prints."""
        words = [*self.network.before(name), self.commonhold, *words]
        return subprocess.run(words, env=self.environment(name), check=True, capture_output=True, text=True).stdout

    def environment(self, name):
        return {**os.environ, "COMMONHOLD_HOST": self.states[name]}

    def hosts(self):
        return [line.split()[0] for line in self.run(HOSTS[0], "hosts").splitlines()[1:]]

    def pause(self, what):
        time.sleep(0.01)
        for name, process in self.programs.items():
            if process.poll():
                raise SystemExit(f"demo: the program on {name} ended with code {process.returncode}")
        if time.monotonic() > self.end:
            raise SystemExit(f"demo: {what} did not happen within {PATIENCE_S} s")

    def prepare(self, paths):
        self.batches = -(-len(paths) // BATCH)
        size = PAGE * (1 + self.batches)
        self.run(HOSTS[0], "create", NAME, "--size", str(size), "--coherence", "strict", "--on-loss", "revert")
        self.content = ch.connect(self.states[HOSTS[0]]).array(NAME, mode="r+")
        self.content[:16].view("u8")[:] = 0, self.batches
        self.pages = self.content[PAGE:].view("u8").reshape(self.batches, PAGE // 8)
        self.list = os.path.join(self.work, "texts")
        with open(self.list, "wb") as file:
            file.writelines(os.fsencode(path) + b"\n" for path in paths)

    def begin(self, name):
        words = [*self.network.before(name), self.program, NAME, self.list]
        self.programs[name] = subprocess.Popen(words, env=self.environment(name))
        print(f"   {name}: process {self.programs[name].pid}", flush=True)

    def wait_for(self, share):
        # A look at every page of the object: each is fetched from whoever filled it.
        while (done := int(np.count_nonzero(self.pages[:, 0]))) < share * self.batches:
            self.pause(f"{share:.0%} of the batches")
        print(f"   {done} of {self.batches} batches are done", flush=True)

    def kill(self, name):
        status = json.loads(self.run(name, "host", "status", "--json"))["status"]
        process = self.programs.pop(name)
        # Each of them would start another in the place of one that dies before it: first nobody of them runs.
        pids = process.pid, status["host_pid"], status["keeper_pid"]
        for sent in signal.SIGSTOP, signal.SIGKILL:
            for pid in pids:
                os.kill(pid, sent)
        if process.wait() != -signal.SIGKILL:
            raise SystemExit("demo: the program was done before its host could be killed")
        print(f"   kill -9: {name} is dead, its keeper and its program with it", flush=True)
        killed = time.monotonic()
        while name in self.hosts():
            self.pause(f"the loss of {name}")
        print(f"   the others missed it after {time.monotonic() - killed:.1f} s; its lease was {LEASE_S} s", flush=True)

    def finish(self):
        for name, process in self.programs.items():
            if process.wait(max(self.end - time.monotonic(), 0)):
                raise SystemExit(f"demo: the program on {name} ended with code {process.returncode}")
        self.wait_for(1)

    def stop(self):
        for process in self.programs.values():
            if process.poll() is None:
                process.kill()
        for name, state in self.states.items():
            if os.path.exists(os.path.join(state, "host.sock")):
                subprocess.run([self.commonhold, "host", "stop", "--force"], env=self.environment(name), capture_output=True)
        self.network.end()


def letters_of(paths):
    """The same without Commonhold."""
    total = np.zeros(26, "u8")
    for path in paths:
        try:
            with open(path, "rb") as file:
                found = np.bincount(np.frombuffer(file.read(DOCUMENT_BYTES), "u1"), minlength=256)
        except OSError:
            continue
        total += (found[65:91] + found[97:123]).astype("u8")
    return total


def main(work, program, commonhold):
    paths = [path for path, _ in texts()]
    cluster = Cluster(work, program, commonhold)
    try:
        cluster.start()
        print(cluster.run(HOSTS[0], "hosts"), end="", flush=True)
        cluster.prepare(paths)
        for name in HOSTS:
            cluster.begin(name)
        cluster.wait_for(0.2)
        cluster.kill(HOSTS[2])
        cluster.finish()
        found = cluster.pages[:, 1:27].sum(axis=0)
        if not np.array_equal(found, letters_of(paths)):
            raise SystemExit("demo: the letters were counted wrong")
        print(f"   {int(found.sum())} letters of {len(paths)} texts, as counted without Commonhold", flush=True)
        del cluster.pages, cluster.content  # unmapped before the hosts are stopped
    finally:
        cluster.stop()


main(*sys.argv[1:])
