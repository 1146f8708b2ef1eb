"""The file system of a path, from the kernel's table of mounts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NETWORK = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "cifs", "smb3", "smbfs", "afs",
    "orangefs", "panfs", "wekafs", "9p", "virtiofs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.beegfs", "fuse.juicefs",
}  # fmt: skip
"""File systems whose files are on another machine."""

MEMORY = {"tmpfs", "ramfs", "hugetlbfs"}
"""File systems whose files are in memory."""

LOCAL_LOCKS = {"localflock", "nolock", "local_lock=all", "local_lock=posix"}
"""Mount options of Lustre and NFS with which a machine's locks hold on that machine only."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system.

    Attributes:
        point: The directory that it is mounted on.
        kind: The kernel's name of the file system, such as "ext4" or "lustre"; or "unknown".
        options: Its mount options.
    """

    point: str
    kind: str
    options: tuple[str, ...] = ()

    @property
    def is_network(self) -> bool:
        """Whether its files are on another machine."""
        return self.kind in NETWORK

    @property
    def local_locks(self) -> str:
        """Why POSIX locks may hold on this machine only, in words; empty if they hold on all.

        >>> Mount("/home", "nfs", ("rw", "vers=3", "local_lock=all")).local_locks
        'mount option local_lock=all'
        """
        if self.kind == "beegfs":  # whether that option is set, no mount option tells
            return "BeeGFS without tuneUseGlobalFileLocks"
        options = (each for each in self.options if self.is_network and each in LOCAL_LOCKS)
        return next((f"mount option {each}" for each in options), "")

    @property
    def is_memory(self) -> bool:
        """Whether its files are in memory."""
        return self.kind in MEMORY


def mount_of(path: Path) -> Mount:
    """Return the mount of a path, or of its nearest parent that exists."""
    real = path.resolve()
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    found, inside = Mount("/", "unknown"), f"{real}/"
    for line in lines:
        mount = _read(line)
        # The later of two mounts on one point hides the earlier one.
        # By text, not by Path: every reading of a study asks, and a node may have many mounts.
        if mount is not None and inside.startswith(f"{mount.point.rstrip('/')}/"):
            found = mount if len(mount.point) >= len(found.point) else found
    return found


def _read(line: str) -> Mount | None:
    r"""Return the mount of a line of mountinfo; see proc_pid_mountinfo(5).

    >>> _read("36 35 98:0 / /my\\040data rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue")
    Mount(point='/my data', kind='ext4', options=('rw', 'noatime', 'errors=continue'))
    """
    before, separator, after = line.partition(" - ")
    fields, rest = before.split(), after.split()
    if not separator or len(fields) < 6 or not rest:
        return None
    # A space in a name is written as an octal escape.
    point = fields[4].encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")
    options = [*fields[5].split(","), *(rest[2].split(",") if len(rest) > 2 else ())]
    return Mount(point, rest[0], tuple(dict.fromkeys(options)))
