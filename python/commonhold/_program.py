"""Where the program `commonhold` is, for a process that has to start its own host."""

import os
import sys

_VARIABLE = "COMMONHOLD_PROGRAM"


def name_program() -> None:
    """Names the program beside this interpreter in the environment, unless it is named, or no host may be started.

    A virtual environment's interpreter is a link: the native part, which looks beside the real program and in PATH,
    would not find what is installed in the environment. The variable stays, because a host may have to be started
    again much later.
    """
    if os.environ.get(_VARIABLE) or os.environ.get("COMMONHOLD_HOST"):
        return
    for directory in (os.path.dirname(sys.executable or ""), os.path.join(sys.prefix, "bin")):
        program = os.path.join(directory, "commonhold")
        if os.path.isabs(program) and os.path.isfile(program) and os.access(program, os.X_OK):
            os.environ[_VARIABLE] = program
            return
