"""Contents of a slurm.toml, and the messages about wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from hptune_jobqueue.config import SITE_VARIABLE, Shape, parse_config, read_config
from hptune_jobqueue.errors import ConfigError
from hptune_jobqueue.values import duration_seconds

THREE_LINES = 'partition = "gpu"\nwalltime = "04:00:00"\naccount = "project"\n'


def test_three_lines_are_enough() -> None:
    (shape,) = parse_config(THREE_LINES).shapes
    assert shape == Shape(name="workers", partition="gpu", walltime="04:00:00", account="project")
    assert shape.walltime_seconds == 4 * 3600


def test_paths_may_begin_with_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job quotes them, and Slurm opens the output by itself: neither knows `~`."""
    monkeypatch.setenv("HOME", "/home/me")
    keys = 'python = "~/env/bin/python"\nscratch = "~/s"\nlog_directory = "~/logs"\n'
    keys += 'image = "~/a.sif"\n'
    (shape,) = parse_config(f'{THREE_LINES}{keys}mounts = ["~/data"]').shapes
    assert (shape.python, shape.scratch) == ("/home/me/env/bin/python", "/home/me/s")
    assert (shape.log_directory, shape.mounts) == ("/home/me/logs", ("/home/me/data",))
    assert shape.image == "/home/me/a.sif"


def test_a_relative_path_begins_in_the_folder_of_the_file(tmp_path: Path) -> None:
    """And not where the user happens to be when jobs are submitted."""
    path = tmp_path / "slurm.toml"
    master = '[master]\npython = "../env/bin/python"'
    path.write_text(f'{THREE_LINES}python = ".venv/bin/python"\nlog_directory = "logs"\n{master}')
    config = read_config(path)
    (shape,) = config.shapes
    assert shape.python == str(tmp_path / ".venv/bin/python")
    assert shape.log_directory == str(tmp_path / "logs")
    assert config.master["python"] == str(tmp_path / "../env/bin/python")
    path.write_text(f'{THREE_LINES}python = "python3.12"')
    assert read_config(path).shapes[0].python == "python3.12", "of the node"
    path.write_text(f'{THREE_LINES}image = "~no user/a.sif"')
    assert read_config(path).shapes[0].image == str(tmp_path / "~no user/a.sif")


@pytest.mark.parametrize(
    "directive",
    ["--signal=B:USR1@60", "#SBATCH --output=a.log", "-o a.log", "--error a.log", "--wait", "-W"],
)
def test_directives_do_not_replace_what_jobs_are_managed_by(directive: str) -> None:
    """sbatch obeys the last option of a kind: a job would not be told to leave."""
    with pytest.raises(ConfigError, match="which hptune sets itself; leave it out"):
        parse_config(f"{THREE_LINES}directives = ['{directive}']")
    assert parse_config(f"{THREE_LINES}directives = ['--wait-all-nodes=1']")


@pytest.mark.parametrize(
    ("directive", "memory"),
    [("--mem=8G", 0), ("--mem-per-cpu=4G", 0), ("--mem-per-gpu 4G", 0), ("--mem-bind=local", None)],
)
def test_memory_is_left_to_a_directive_that_asks_for_it(directive: str, memory: int | None) -> None:
    asked = f"directives = [{directive!r}]\n"
    config = parse_config(f"{THREE_LINES}{asked}[master]\n{asked}")
    assert (config.shapes[0].memory, config.master.get("memory")) == (memory, memory)
    of_shape = parse_config(f"{THREE_LINES}{asked}[[shape]]\nname = 'a'\n")
    assert of_shape.shapes[0].memory == memory


def test_what_stands_at_the_top_holds_for_every_shape() -> None:
    config = parse_config(
        """
        account = "project"
        walltime = "01:00:00"
        interface = "ib0"
        modules = ["cuda/12"]
        environment = { DATA = "/data", COUNT = 3 }

        [[shape]]
        name = "big"
        partition = "gpu"
        gpu_type = "a100"
        memory = "64GB"

        [[shape]]
        name = "small"
        partition = "cpu"
        walltime = "1-00:00:00"
        exclusive = true
        directives = ["#SBATCH --constraint=skylake", "--nice=10"]
        """
    )
    big, small = config.shapes
    assert (big.account, small.account) == ("project", "project")
    assert (big.walltime_seconds, small.walltime_seconds) == (3600, 86400)
    assert big.memory == 64 * 10**9
    assert big.environment == (("DATA", "/data"), ("COUNT", "3"))
    assert big.modules == ("cuda/12",)
    assert small.directives == ("--constraint=skylake", "--nice=10")
    assert small.exclusive
    assert config.interface == "ib0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('partitoin = "gpu"\nwalltime = "1:00:00"', "did you mean 'partition'?"),
        ('zzz = 1\npartition = "gpu"\nwalltime = "1:00:00"', "allowed are name, partition,"),
        ('partition = "gpu"\nwalltim = "1:00:00"', "did you mean 'walltime'?"),
        ('walltime = "1:00:00"', "'partition' is missing"),
        ('partition = "gpu"', "'walltime' is missing"),
        ('partition = "gpu"\nwalltime = "four hours"', "walltime is 'four hours'"),
        ('partition = "gpu"\nwalltime = "00:00:00"', "allowed are times above 0"),
        ('partition = "gpu"\nwalltime = "00:01:00"', "notice_seconds is 120"),
        ('partition = "gpu"\nwalltime = "00:03:59"', "half of the walltime, here 119. Give less"),
        ('partition = 3\nwalltime = "1:00:00"', "partition is 3"),
        (THREE_LINES + 'memory = "lots"', "memory is 'lots'"),
        *(
            (f"{THREE_LINES}directives = ['{each}']", f"has '{each}', which would change the GPUs")
            for each in ("--gres=gpu:2", "--gpus-per-node=1", "-G 2", "--gres=nvme:1,gpu:a100:1")
        ),
        *(
            (f"{THREE_LINES}directives = ['{each}']", f"has '{each}', but jobs are found and")
            for each in ("--job-name=mine", "-Jmine", "--array=0-9", "--nodes=2", "-N 2")
        ),
        *(
            (f"{THREE_LINES}directives = ['{each}']", "set the environment variable SLURM_CLUSTERS")
            for each in ("--clusters=big", "-M big")
        ),
        (THREE_LINES + "max_jobs = 0", "max_jobs is 0; allowed are whole numbers from 1"),
        # Workers wait for the scheduler for as long, and so for some time.
        (THREE_LINES + "grace_seconds = 0", "grace_seconds is 0; allowed are whole numbers from 1"),
        (THREE_LINES + "gpus = true", "gpus is True"),
        (THREE_LINES + 'modules = "cuda"', "allowed is a list of texts"),
        (THREE_LINES + 'environment = ["A=1"]', "allowed is a table"),
        (THREE_LINES + 'environment = { "a b" = "1" }', "not the name of a variable"),
        (THREE_LINES + 'exclusive = "yes"', "allowed are true and false"),
        (THREE_LINES + 'image = "a.sif"\nlauncher = "nice"', "which it is short for"),
        (THREE_LINES + 'mounts = ["data"]', "mounts has 'data'; allowed are directories"),
        (THREE_LINES + 'name = "a b"', "name is 'a b'"),
        ('partition = "gpu"\nwalltime = 4', '"04:00:00" (four hours), "4-00:00:00" (four days)'),
        (THREE_LINES + "shape = []", "`shape` is empty"),
        (THREE_LINES + "shape = [3]", "begin each with [[shape]]"),
        (THREE_LINES + '[[shape]]\nname="a"\n[[shape]]\nname="a"', "two shapes are called 'a'"),
        (THREE_LINES + "[shape]\nname = 'a'", "single brackets; begin each shape with [[shape]]"),
        (THREE_LINES + "[[shapes]]\nname = 'a'", "did you mean 'shape'?"),
        (THREE_LINES + "[[master]]\ncpus = 1", "`master` is not a single table; begin it with"),
        (THREE_LINES + "[[shape]]\nname = 'a'\nshape = 3", "unknown key 'shape'; allowed are"),
        (THREE_LINES + 'log_directory = "$SCRATCH/a"', "Slurm knows no variables there"),
        (THREE_LINES + 'constraint = "a100"', "other options of sbatch go into directives"),
        ('walltime = "1:0:0"\n[[shape]]\npartition = "a"\n[[shape]]\nname = "b"',
         "shape b: 'partition' is missing; add it, as in partition = \"gpu\""),
        (THREE_LINES + 'account = "me"', 'line 4, `account = "me"`, repeats a key given above'),
        (THREE_LINES + 'gpus = "2"', "allowed are whole numbers from 0 on, without quotes"),
        (THREE_LINES + "memory = 64", "memory is 64; allowed are sizes with their units"),
        (THREE_LINES + "memory = false", "memory is False; allowed are sizes with their units"),
        (THREE_LINES + 'memory = "8GB"\ndirectives = ["--mem-per-gpu=4G"]',
         "line 4: memory is given, and directives has '--mem-per-gpu=4G'; leave one of them out"),
        (THREE_LINES + 'directives = ["--mem=4G"]\n[[shape]]\nmemory = "8GB"',
         "line 6: memory is given, and directives has '--mem=4G'; leave one of them out"),
        ('partition = "gpu"\nwalltime = "01:00"', '"04:00:00" is four hours, "04:00" four minutes'),
        ('partition = "gpu"\nwalltime = 04:00:00', "walltime is 04:00:00; allowed are Slurm"),
        ("partition =", "no TOML"),
        ('partition = "gpu"\nwalltime = 04:00:00h', "line 2, `walltime = 04:00:00h`, is no TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(text)
    assert said in str(error.value)


def test_the_line_is_named_where_a_key_is_wrong() -> None:
    for text, said in (
        (THREE_LINES + "\nmax_jobs = 0", "line 5: max_jobs is 0"),
        (THREE_LINES + "[[shape]]\nmax_job = 1", "line 5: unknown key 'max_job' (did you mean"),
        (THREE_LINES + "[[shape]]\nname='a'\nmemory = 'x'\n[[shape]]\nmemory = 'x'",
         "line 6 or 8: memory is 'x'"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as error:
            parse_config(text)
        assert said in str(error.value)


def test_the_file_is_named_in_every_complaint(tmp_path: Path) -> None:
    path = tmp_path / "slurm.toml"
    with pytest.raises(ConfigError, match=r"slurm\.toml cannot be read: No such file"):
        read_config(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        read_config(path)
    path.write_text('walltime = "1"')
    with pytest.raises(ConfigError, match=r"slurm\.toml: 'partition' is missing"):
        read_config(path)
    path.write_text(THREE_LINES)
    assert read_config(path).shapes[0].partition == "gpu"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "etc" / "site.toml"
    path.parent.mkdir()
    monkeypatch.setenv(SITE_VARIABLE, str(path))
    return path


def test_a_site_gives_defaults_that_the_user_replaces(tmp_path: Path, site: Path) -> None:
    site.write_text(
        'partition = "all"\naccount = "site"\nmodules = ["site"]\nimage = "own.sif"\n'
        '[master]\npartition = "service"\nwalltime = "2-0"\n'
    )
    path = tmp_path / "slurm.toml"
    path.write_text(
        'walltime = "10"\nmodules = ["mine"]\n[master]\nwalltime = "1-0"\n'
        '[[shape]]\nname = "a"\n[[shape]]\nname = "b"\npartition = "gpu"\n'
    )
    config = read_config(path)
    assert config.files == (path, site)
    first, second = config.shapes
    assert (first.partition, second.partition, first.account) == ("all", "gpu", "site")
    assert first.modules == ("mine",)
    assert first.image == str(site.parent / "own.sif")
    assert (config.master["partition"], config.master["walltime"]) == ("service", "1-0")
    path.write_text('walltime = "10"\nlauncher = "numactl"\n')
    (shape,) = read_config(path).shapes
    assert (shape.image, shape.launcher) == (None, "numactl")


def test_what_a_site_says_of_images_concerns_shapes_with_an_image(
    tmp_path: Path, site: Path
) -> None:
    site.write_text('image_program = "singularity"\nimage_options = ["--rocm"]\n')
    path = tmp_path / "slurm.toml"
    path.write_text(
        'partition = "gpu"\nwalltime = "10"\n'
        '[[shape]]\nname = "a"\nimage = "own.sif"\n[[shape]]\nname = "b"\nlauncher = "numactl"\n'
    )
    first, second = read_config(path).shapes
    assert (first.image_program, first.image_options) == ("singularity", ("--rocm",))
    assert (second.image_program, second.image_options) == (None, ())
    site.write_text('image = "site.sif"\nimage_program = "singularity"\n')
    path.write_text('partition = "gpu"\nwalltime = "10"\nlauncher = "numactl"\n')
    (shape,) = read_config(path).shapes
    assert (shape.image, shape.image_program, shape.launcher) == (None, None, "numactl")


def test_a_shape_with_an_image_of_its_own_leaves_the_site_s_to_the_others(
    tmp_path: Path, site: Path
) -> None:
    site.write_text('image = "site.sif"\nimage_program = "singularity"\n')
    path = tmp_path / "slurm.toml"
    path.write_text(
        'partition = "gpu"\nwalltime = "10"\n[[shape]]\nname = "a"\nimage = "own.sif"\n'
        '[[shape]]\nname = "b"\n[[shape]]\nname = "c"\nlauncher = "numactl"\n'
    )
    first, second, third = read_config(path).shapes
    assert first.image == str(tmp_path / "own.sif")
    assert second.image == str(site.parent / "site.sif")
    assert first.image_program == second.image_program == "singularity"
    assert (third.image, third.image_program, third.launcher) == (None, None, "numactl")


def test_what_a_user_says_at_the_top_goes_before_the_site_s_words_on_the_master(
    tmp_path: Path, site: Path
) -> None:
    site.write_text(
        'account = "all"\n[master]\naccount = "site"\npartition = "service"\n'
        'modules = ["slim"]\nprologue = ["ulimit -c 0"]\n'
    )
    path = tmp_path / "slurm.toml"
    path.write_text('partition = "gpu"\nwalltime = "10"\naccount = "mine"\nmodules = ["cuda"]\n')
    config = read_config(path)
    assert config.shapes[0].account == config.master["account"] == "mine"
    assert (config.master["modules"], config.master["partition"]) == (("cuda",), "service")
    assert config.master["prologue"] == ("ulimit -c 0",)
    path.write_text('partition = "gpu"\nwalltime = "10"\n[master]\naccount = "slow"\n')
    config = read_config(path)
    assert (config.shapes[0].account, config.master["account"]) == ("all", "slow")
    path.write_text('partition = "gpu"\nwalltime = "10"\n')
    assert read_config(path).master["account"] == "site"


def test_memory_beside_a_directive_of_the_site_can_be_asked_for(tmp_path: Path, site: Path) -> None:
    site.write_text('directives = ["--mem-per-cpu=4G"]\n')
    path = tmp_path / "slurm.toml"
    path.write_text(f'{THREE_LINES}memory = "8GB"\n')
    with pytest.raises(ConfigError, match=r"slurm\.toml: line 4: .* in place of the site's"):
        read_config(path)
    path.write_text(f'{THREE_LINES}memory = "8GB"\ndirectives = []\n')
    assert read_config(path).shapes[0].memory == 8 * 10**9


def test_an_image_of_a_site_may_be_a_name_in_a_registry(tmp_path: Path, site: Path) -> None:
    site.write_text('image = "nvcr.io#nvidia/jax:25"\nimage_program = "pyxis"\n')
    path = tmp_path / "slurm.toml"
    path.write_text('partition = "gpu"\nwalltime = "10"\n')
    assert read_config(path).shapes[0].image == "nvcr.io#nvidia/jax:25"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_jobs = 0", r"site\.toml: line 1: max_jobs is 0"),
        ("[[shape]]", r"site\.toml: unknown key 'shape'"),
        ("[master]\nnodes = 2", r"site\.toml: line 2: \[master\]: unknown key 'nodes'"),
        ("partition = gpu", r"site\.toml: line 1, .* is no TOML"),
    ],
)
def test_what_is_wrong_in_the_file_of_a_site_is_said_of_it(
    tmp_path: Path, site: Path, text: str, said: str
) -> None:
    (tmp_path / "slurm.toml").write_text(THREE_LINES)
    with pytest.raises(ConfigError, match=r"site\.toml cannot be read: .*HPTUNE_SITE_CONFIG"):
        read_config(tmp_path / "slurm.toml")
    site.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_config(tmp_path / "slurm.toml")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1", 60), ("90:30", 5430), ("01:02:03", 3723), ("2-0", 172800), ("1-1:1:1", 90061)],
)
def test_walltimes_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert duration_seconds(text) == seconds


def test_nodes_are_excluded_in_each_form_of_the_option() -> None:
    directives = '["--exclude=n1", "--exclude n2", "-x n3", "-xn4", "--exclusive"]'
    (shape,) = parse_config(f"{THREE_LINES}directives = {directives}").shapes
    assert shape.excluded == ("n1", "n2", "n3", "n4")
