"""Where the package works: Linux 6.7 or later."""

import os
import re
import sys

_OLDEST = (6, 7)


def check() -> None:
    """Refuses to be imported where nothing of it would work, and says what to do."""
    if sys.platform != "linux":
        raise ImportError(
            f"commonhold shares memory through the Linux kernel, and this is {sys.platform}: use it in a virtual machine "
            f"with Linux {_OLDEST[0]}.{_OLDEST[1]} or later"
        )
    release = os.uname().release
    found = re.match(r"(\d+)\.(\d+)", release)
    if found and (int(found[1]), int(found[2])) < _OLDEST:
        raise ImportError(
            f"commonhold needs Linux {_OLDEST[0]}.{_OLDEST[1]} or later, and this machine runs {release}: install a newer kernel "
            f"(on Debian 12 `apt install -t bookworm-backports linux-image-amd64`), and restart"
        )
