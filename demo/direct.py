"""Starts both programs, kills one of them and the host, and looks at what is left.

Usage: direct.py NAME FILE INDEX_PROGRAM COMMONHOLD_PROGRAM"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import commonhold as ch
from layout import Index

PATIENCE_S = 100


class Director:
    def __init__(self, name, file, program, commonhold):
        self.name, self.file, self.commonhold = name, file, commonhold
        self.index = Index(ch.array(name, mode="r"))
        self.commands = {
            "C": [program, name],
            "Python": [sys.executable, os.path.join(os.path.dirname(__file__), "index.py"), name],
        }
        self.running = {}
        self.end = time.monotonic() + PATIENCE_S

    def start(self, which):
        self.running[which] = subprocess.Popen(self.commands[which])
        print(f"   {which} program: process {self.running[which].pid}", flush=True)

    def finished(self):
        return [region.position()[0] for region in self.index.regions]

    def pause(self, what):
        time.sleep(0.005)
        for which, process in self.running.items():
            if process.poll():
                raise SystemExit(f"demo: the {which} program ended with code {process.returncode}")
        if time.monotonic() > self.end:
            raise SystemExit(f"demo: {what} did not happen within {PATIENCE_S} s")

    def wait_for(self, share):
        while sum(self.finished()) < share * self.index.documents:
            self.pause(f"{share:.0%} of the documents")
        of_c, of_python = self.finished()
        print(f"   {share:.0%} of the documents: {of_c} by C, {of_python} by Python", flush=True)

    def kill_program(self):
        """Kills the C program, and keeps a copy of the stored file as it is then."""
        process = self.running.pop("C")
        time.sleep(0.03)  # not just at a sync, which is what the wait saw
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise SystemExit("demo: the C program was done before it could be killed")
        # Syncs of an object are done one after the other: after this one, none of the dead program's is under way.
        with ch.open(self.name, "r+") as found:
            found.sync(0, ch.PAGE_SIZE_BYTES)
        shutil.copyfile(self.file, self.file + ".after-kill")
        print(f"   kill -9 {process.pid}: the C program is dead; Python goes on", flush=True)

    def host(self):
        """State of the host, among it its process and its keeper's."""
        answer = subprocess.run([self.commonhold, "host", "status", "--json"], capture_output=True, check=True)
        return json.loads(answer.stdout)["status"]

    def kill_host(self):
        before = self.host()
        count = sum(self.finished())
        os.kill(before["host_pid"], signal.SIGKILL)
        killed = time.monotonic()
        print(f"   kill -9 {before['host_pid']}: the host is dead", flush=True)
        while sum(self.finished()) < count + 4 * 64:
            self.pause("progress after the death of the host")
        passed = time.monotonic() - killed
        after = self.host()
        if after["host_pid"] == before["host_pid"] or after["keeper_pid"] != before["keeper_pid"]:
            raise SystemExit("demo: the keeper should have started another host")
        print(f"   keeper {after['keeper_pid']} has started host {after['host_pid']}; both programs noticed nothing, and "
              f"made {sum(self.finished()) - count} documents durable in the {passed:.1f} s since", flush=True)

    def run(self):
        self.start("C")
        self.start("Python")
        self.wait_for(0.25)
        self.kill_program()
        self.start("C")
        self.wait_for(0.5)
        self.kill_host()
        for which, process in self.running.items():
            if process.wait(max(self.end - time.monotonic(), 0)):
                raise SystemExit(f"demo: the {which} program ended with code {process.returncode}")

    def stop(self):
        for process in self.running.values():
            if process.poll() is None:
                process.kill()


director = Director(*sys.argv[1:])
try:
    director.run()
finally:
    director.stop()
