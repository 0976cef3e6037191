"""What a host tells of objects, directories, mappings and itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """All there is to know of an object."""

    id: int
    """Never used twice by a host."""
    name: str | None
    """None once it was removed while in use."""
    uid: int
    gid: int
    mode: int
    """Permission bits."""
    size_bytes: int
    pager: str
    """`anonymous`, `file` or `external`."""
    pager_name: str | None
    """Of an external pager."""
    file_path: str | None
    """Where the backing file was when it was opened, for people."""
    sync: str
    """`plain`, `ordered` or `atomic`."""
    controlled: bool
    """Whether the host serves its faults."""
    freezable: bool
    read_only: bool
    """Whether nobody writes to it: a snapshot."""
    reserved: bool
    """Whether its memory was taken at creation."""
    on_last_death: str
    ephemeral_ms: int | None
    """So long after its last user its name goes; `None`: it stays."""
    budget_bytes: int | None
    fault_deadline_ms: int | None
    pager_deadline_ms: int | None
    description: str
    """Data type of its elements; empty: bytes."""
    resident_bytes: int
    dirty_bytes: int
    """Newer than what is stored, as far as the host knows without asking."""
    spilled_bytes: int
    mappings: int
    """Of all processes."""
    opens: int
    charged_to: str
    """Which control group pays for its frames, in words."""
    warning: str | None
    home: str | None
    """The host that is its home; `None` outside of a cluster."""
    is_elsewhere: bool
    """Whether that is another host than the one that was asked."""
    lost_pages: int
    """Whose newest version was lost with a host."""
    reverted_pages: int
    """Of which an older version serves, because the newest was lost."""
    loss_generation: int
    """Another number whenever newest versions were lost: compare it with what it was."""
    translation: str
    """`paged`, `shared-tables`, `shared-tables-4k` or `wired`."""
    page_tables: int
    """With shared page tables, how many map each page at most, the host's two among them; 0: the kernel does not tell."""
    address: int | None
    """Where it is in all processes, if it was created `fixed`."""
    room_bytes: int | None
    """How many bytes of addresses it has there."""
    types: list[tuple[int, int, str]]
    """What is in its pages: first byte, bytes and tag of each run that has one."""
    translated_pages: int
    """Pages that this host had to translate, for or from a machine of another type."""
    untranslatable: int
    """Numbers in them that have no counterpart here."""


@dataclass(frozen=True, slots=True)
class DirectoryStat:
    """A directory of names."""

    name: str
    uid: int
    gid: int
    mode: int


@dataclass(frozen=True, slots=True)
class MappingStat:
    """One mapping of one process."""

    pid: int
    uid: int
    address: int
    length_bytes: int
    offset_bytes: int
    writable: bool
    shared: bool
    faults: int


@dataclass(frozen=True, slots=True)
class HostStatus:
    """State of a host."""

    version: str
    host_pid: int
    keeper_pid: int
    uid: int
    state_directory: str
    uptime_ms: int
    generation: int
    """How many host processes this keeper has started."""
    objects: int
    clients: int
    mappings: int
    resident_bytes: int
    direct_bytes: int
    """Memory of direct objects without a file, beside that."""
    budget_bytes: int
    faults: int
    pages_installed: int
    pages_evicted: int
    syncs: int
    kernel_faults: bool
    """Whether `read()` straight into missing pages of a mapping works (a privileged host)."""
    quota_bytes: int
    repairs: list[str]
    """What was repaired at start."""
    machine: str
    """Its machine type: `little-ieee`, `big-ieee` or `vax`."""
