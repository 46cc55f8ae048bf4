"""aiosd.conf(5): which files count, what is taken from them, and what is said about the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiosd.config import Config, Loaded, load, settings
from aiosd.config.files import assignments
from aiosd.config.kinds import Boolean, Percent, Share, Size, Span, Whole
from aiosd.config.manpage import rendered

ROOT = Path(__file__).parents[3]

# Seed 000 ("initialize") and seed 002 ("调度相关配置参数"): name, default; persistence is ours by design.
SEED_DEFAULTS = {
    "max_concurrent_tasks": 10,
    "max_tasks_per_tool": 3,
    "max_queue_size": 100,
    "schedule_interval": 1.0,
    "task_timeout": None,
    "suppress_completion_signal": False,
    "default_task_priority": 1,
    "enable_task_persistence": True,
    "event_queue_size": 10000,
    "event_timeout": 300.0,
    "stream_first_frame_timeout": 30.0,
}


class Machine:
    """The three directories, strongest first, as on a machine."""

    def __init__(self, root: Path) -> None:
        self.etc, self.run, self.usr = (root / name for name in ("etc", "run", "usr"))

    def write(self, directory: Path, name: str, text: str) -> Path:
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def load(self) -> Loaded:
        return load((self.etc, self.run, self.usr))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_defaults_are_the_seeds() -> None:
    config = Config()
    assert {name: getattr(config, name) for name in SEED_DEFAULTS} == SEED_DEFAULTS
    in_scheduler = {row.name for row in settings() if row.section == "Scheduler"}
    assert set(SEED_DEFAULTS) <= in_scheduler


def test_no_file_is_no_problem(machine: Machine) -> None:
    assert machine.load() == Loaded(Config())


def test_every_default_is_a_value_that_its_kind_takes() -> None:
    for row in settings():
        assert row.kind.parse(row.default_text) == row.default, row.name


def test_all_kinds_are_read(machine: Machine) -> None:
    machine.write(
        machine.etc, "aiosd.conf",
        "# A comment\n; another\n\n[Scheduler]\nmax_concurrent_tasks = 64\nschedule_interval=250ms\n"
        "task_timeout=1h 30min\nsuppress_completion_signal=on\n"
        "[Store]\nlog_max_bytes=4M\nretention_days=infinity\n[X-Ours]\nanything=goes\n",
    )  # fmt: skip
    loaded = machine.load()
    assert loaded.warnings == ()
    config = loaded.config
    assert (config.max_concurrent_tasks, config.schedule_interval, config.task_timeout) == (64, 0.25, 5400.0)
    assert (config.suppress_completion_signal, config.log_max_bytes, config.retention_days) == (True, 4 << 20, None)


def test_the_strongest_main_file_counts_as_a_whole(machine: Machine) -> None:
    machine.write(machine.usr, "aiosd.conf", "[Scheduler]\nmax_concurrent_tasks=20\nmax_queue_size=500\n")
    assert machine.load().config.max_concurrent_tasks == 20
    machine.write(machine.run, "aiosd.conf", "[Scheduler]\nmax_concurrent_tasks=25\n")
    machine.write(machine.etc, "aiosd.conf", "[Scheduler]\nmax_concurrent_tasks=30\n")
    config = machine.load().config
    assert (config.max_concurrent_tasks, config.max_queue_size) == (30, 100)


def test_drop_ins_apply_by_name_whatever_their_directory(machine: Machine) -> None:
    machine.write(machine.etc, "aiosd.conf", "[Scheduler]\nmax_concurrent_tasks=1\n")
    machine.write(machine.etc, "aiosd.conf.d/10-etc.conf", "[Scheduler]\nmax_concurrent_tasks=10\nmax_queue_size=10\n")
    last = machine.write(machine.usr, "aiosd.conf.d/90-usr.conf", "[Scheduler]\nmax_concurrent_tasks=90\n")
    machine.write(machine.run, "aiosd.conf.d/50-run.conf", "[Scheduler]\nmax_concurrent_tasks=50\n")
    machine.write(machine.etc, "aiosd.conf.d/99-not.conf.bak", "[Scheduler]\nmax_concurrent_tasks=99\n")
    loaded = machine.load()
    assert (loaded.config.max_concurrent_tasks, loaded.config.max_queue_size) == (90, 10)
    names = [file.name for file in loaded.files]
    assert names == ["aiosd.conf", "10-etc.conf", "50-run.conf", "90-usr.conf"]
    assert loaded.files[-1] == last


def test_of_equal_names_the_strongest_counts(machine: Machine) -> None:
    name = "aiosd.conf.d/50.conf"
    machine.write(machine.usr, name, "[Scheduler]\nmax_concurrent_tasks=20\nmax_queue_size=200\n")
    machine.write(machine.run, name, "[Scheduler]\nmax_concurrent_tasks=30\n")
    config = machine.load().config
    assert (config.max_concurrent_tasks, config.max_queue_size) == (30, 100)
    machine.write(machine.etc, name, "[Scheduler]\nmax_concurrent_tasks=40\n")
    assert machine.load().config.max_concurrent_tasks == 40


@pytest.mark.parametrize("link", [True, False])
def test_a_file_is_masked_by_nothing(machine: Machine, *, link: bool) -> None:
    machine.write(machine.usr, "aiosd.conf", "[Scheduler]\nmax_concurrent_tasks=20\n")
    machine.write(machine.usr, "aiosd.conf.d/50.conf", "[Scheduler]\nmax_queue_size=200\n")
    for name in ("aiosd.conf", "aiosd.conf.d/50.conf"):
        mask = machine.etc / name
        mask.parent.mkdir(parents=True, exist_ok=True)
        if link:
            mask.symlink_to("/dev/null")
        else:
            mask.touch()
    loaded = machine.load()
    assert loaded.config == Config()
    assert loaded.warnings == ()


WRONG = [
    ("max_concurrent_tasks=0", "must be from 1 to 10000"),
    ("max_concurrent_tasks=many", "must be a whole number"),
    ("max_concurrent_tasks=-3", "must be a whole number"),
    ("max_concurrent_tasks=1.5", "must be a whole number"),
    ("max_concurrent_tasks=٣", "must be a whole number"),
    ("schedule_interval=0.05", "must be from 100ms to 1h"),
    ("schedule_interval=nan", "must be a time span"),
    ("schedule_interval=1 fortnight", "must be a time span"),
    ("event_timeout=99", "must be from 100s to 1d"),
    ("task_timeout=0", "must be from 1ms"),
    ("default_task_priority=4", "must be from 0 to 3"),
    ("suppress_completion_signal=maybe", "must be yes or no"),
    ("enable_task_persistence=no", "cannot be turned off: every task is stored before it is answered"),
    ("max_concurent_tasks=5", "unknown setting 'max_concurent_tasks' in section [Scheduler]"),
    ("log_max_bytes=4M", "unknown setting 'log_max_bytes' in section [Scheduler]"),
    ("max_concurrent_tasks", "neither a section nor an assignment"),
    ("=5", "neither a section nor an assignment"),
]


@pytest.mark.parametrize(("line", "message"), WRONG, ids=[row[0] for row in WRONG])
def test_what_is_wrong_is_warned_of_with_its_place_and_the_default_kept(
    machine: Machine, line: str, message: str
) -> None:
    file = machine.write(machine.etc, "aiosd.conf", f"\n[Scheduler]\n{line}\nmax_queue_size=7\n")
    loaded = machine.load()
    (warning,) = loaded.warnings
    assert str(warning).startswith(f"{file}:3: ")
    assert message in str(warning)
    assert loaded.config == Config(max_queue_size=7), "and the rest of the file counts"


def test_a_wrong_value_does_not_undo_an_earlier_right_one(machine: Machine) -> None:
    machine.write(machine.etc, "aiosd.conf", "[Scheduler]\nmax_queue_size=7\nmax_queue_size=x\n")
    assert machine.load().config.max_queue_size == 7


def test_an_empty_value_is_the_default_again(machine: Machine) -> None:
    machine.write(machine.usr, "aiosd.conf", "[Scheduler]\nmax_queue_size=7\n")
    machine.write(machine.etc, "aiosd.conf.d/50.conf", "[Scheduler]\nmax_queue_size=\n")
    assert machine.load().config == Config()


def test_outside_of_a_section_nothing_is_set(machine: Machine) -> None:
    machine.write(machine.etc, "aiosd.conf", "max_queue_size=7\n")
    loaded = machine.load()
    assert loaded.config == Config()
    assert "outside of any section" in str(loaded.warnings[0])


def test_lines_are_joined_as_systemd_joins_them(tmp_path: Path) -> None:
    # systemd.syntax(7), its own example: comments inside a continued line are left out.
    text = (
        "[Section C]\n"
        "KeyThree=value 3\\\n"
        "# this line is ignored\n"
        "; this line is ignored too\n"
        "       value 3 continued\n"
    )  # fmt: skip
    (found,) = assignments(tmp_path, text)
    assert (found.line, " ".join(getattr(found, "value").split())) == (2, "value 3 value 3 continued")  # noqa: B009 - either class


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe", "not UTF-8"), (b"#" * (1 << 20) + b"\n", "longer than")],
    ids=["not text", "too long"],
)
def test_a_file_that_cannot_be_taken_is_told_and_the_others_count(
    machine: Machine, content: bytes, message: str
) -> None:
    machine.write(machine.etc, "aiosd.conf", "").write_bytes(content)
    machine.write(machine.etc, "aiosd.conf.d/50.conf", "[Scheduler]\nmax_queue_size=7\n")
    loaded = machine.load()
    assert message in str(loaded.warnings[0])
    assert loaded.config.max_queue_size == 7


@pytest.mark.parametrize(
    ("text", "seconds"),
    # systemd.time(7), "Parsing time spans", its own examples.
    [("2 h", 7200), ("2hours", 7200), ("48hr", 172_800), ("55s500ms", 55.5), ("300ms20s 5day", 432_020.3), ("5", 5)],
)
def test_time_spans_are_systemds(text: str, seconds: float) -> None:
    assert Span(0, 10**9).parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("Yes", True), ("t", True), ("0", False), ("OFF", False)])
def test_booleans_are_systemds(text: str, *, value: bool) -> None:
    assert Boolean().parse(text) is value


@given(st.integers(0, 1 << 50))
def test_sizes_come_back_as_they_are_shown(size: int) -> None:
    kind = Size(0, 1 << 50)
    assert kind.parse(kind.show(size)) == size


@given(st.text(max_size=300))
def test_no_text_breaks_loading(text: str) -> None:
    for found in assignments(Path("any"), f"[Scheduler]\n{text}"):
        if hasattr(found, "value"):
            for row in settings():
                try:
                    row.kind.parse(found.value)
                except ValueError as error:
                    assert str(error)


@given(st.text(max_size=30))
def test_numbers_stay_within_their_bounds(text: str) -> None:
    try:
        assert 1 <= Whole(1, 9).parse(text) <= 9
    except ValueError:
        return


def test_the_man_page_is_made_from_the_table() -> None:
    page = (ROOT / "docs/man/aiosd.conf.5.md").read_text(encoding="utf-8")
    assert rendered(page) == page, "run: python3 -m aiosd.config.manpage docs/man/aiosd.conf.5.md"
    for row in settings():
        assert f"*{row.name}=*" in page


@given(st.integers(1, 100), st.integers(1, 1_000_000))
def test_a_share_is_a_number_or_a_part(percent: int, whole: int) -> None:
    kind = Share(1_000_000)
    part = kind.parse(f"{percent}%")
    assert part == Percent(percent)
    assert kind.parse(kind.show(part)) == part
    assert isinstance(part, Percent)
    assert 1 <= part.of(whole) <= whole
    assert kind.parse(str(whole)) == whole
    for wrong in ("0%", "101%", "%", "50 %", "-1", "0"):
        with pytest.raises(ValueError, match="must be"):
            kind.parse(wrong)


def test_one_user_has_half_of_the_queue_unless_told_otherwise(machine: Machine) -> None:
    assert Config().queue_share == 50
    machine.write(machine.etc, "aiosd.conf", "[Scheduler]\nmax_queue_size=7\n[Limits]\nmax_queued_per_user=100%\n")
    assert machine.load().config.queue_share == 7
    machine.write(machine.etc, "aiosd.conf", "[Limits]\nmax_queued_per_user=infinity\n")
    assert machine.load().config.queue_share is None
