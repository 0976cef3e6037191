"""Where the hosts of the demo are: each in a network namespace of its own, joined by a switch, if this user may make them;
else on ports of the loopback device. Nothing leaves the machine, and nothing is left of it."""

import os
import socket
import subprocess

SUBNET, PORT = "10.214.8", 7420


class Ports:
    """One machine, a port for each host."""

    words = "ports of the loopback device"

    def __init__(self, names):
        self.addresses = {name: self.free_address() for name in names}

    @staticmethod
    def free_address():
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{found.getsockname()[1]}"

    def before(self, name):
        return []

    def end(self):
        pass


class Spaces:
    """A namespace and an address for each host."""

    words = "network namespaces"

    def __init__(self, names):
        self.addresses = {name: f"{SUBNET}.{number}:{PORT}" for number, name in enumerate(names, 1)}
        self.made = []
        try:
            self.make(names)
        except BaseException:
            self.end()
            raise

    def make(self, names):
        switch = self.space("switch")
        self.ip("link add bridge type bridge", switch)
        self.ip("link set bridge up", switch)
        for number, name in enumerate(names, 1):
            own = self.space(name)
            self.ip(f"link add wire type veth peer name {name} netns {switch}", own)
            self.ip(f"link set {name} master bridge up", switch)
            self.ip(f"addr add {SUBNET}.{number}/24 dev wire", own)
            self.ip("link set wire up", own)
            self.ip("link set lo up", own)

    def space(self, name):
        space = self.named(name)
        self.ip(f"netns add {space}")
        self.made.append(space)
        return space

    @staticmethod
    def named(name):
        return f"commonhold-demo-{os.getpid()}-{name}"

    @staticmethod
    def ip(words, space=None):
        within = ["-n", space] if space else []
        subprocess.run(["ip", *within, *words.split()], check=True, capture_output=True, text=True)

    def before(self, name):
        """Words before a command that is to run where that host is."""
        return ["ip", "netns", "exec", self.named(name)]

    def end(self):
        for space in self.made:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)


def network(names):
    """The best that can be had here."""
    try:
        return Spaces(names)
    except (OSError, subprocess.CalledProcessError):  # no `ip`, or not the right to
        return Ports(names)
