"""The command from outside: what a person types, in real processes; and what every kind of bad input is told.

Where the promise is not about the process itself, `main` is called in this one, to save the seconds of its imports.
"""

import csv
import ctypes
import gzip
import io
import json
import os
import pty
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import xclearn
from xclearn.cli.main import main
from xclearn.inference import load_model

XC = [sys.executable, "-c", "from xclearn.cli.main import main; main()"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"}
ENVIRONMENT.pop("PYTHONUNBUFFERED", None)  # a user's output is buffered

TOPICS = {
    "bird": "wing feather nest sing beak",
    "cat": "purr whisker kitten meow tail",
    "dog": "bark bone puppy leash fetch",
    "fish": "swim gill fin water scale",
    "horse": "ride saddle trot gallop hoof",
}
LIBC = ctypes.CDLL(None)  # loaded here: a forked child should not load anything
QUICK = ("-a", "one_vs_all", "--set", "epochs=2", "--set", "embedding_dim=16")
SLOW = (
    "-a",
    "one_vs_all",
    "--set",
    "epochs=6",
    "--set",
    "batch_size=1",
    "--set",
    "embedding_dim=16",
)  # time enough to interrupt it


class Result(NamedTuple):
    code: int
    out: str
    err: str


def answered(result: Result) -> list[dict[str, str]]:
    """The rows of answers in TSV."""
    return list(csv.DictReader(io.StringIO(result.out), delimiter="\t"))


def labels_of(answer: dict[str, str]) -> list[str]:
    """The labels of a row, best first."""
    return [value for name, value in answer.items() if name.startswith("label_") and value]


def planted(count: int, seed: int) -> list[dict[str, Any]]:
    """Texts made of three words of each of their two labels: the right answer is known."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        labels = draw.sample(sorted(TOPICS), 2)
        words = [word for label in labels for word in draw.sample(TOPICS[label].split(), 3)]
        rows.append({"text": " ".join(draw.sample(words, 6)), "labels": sorted(labels)})
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(*arguments: object, stdin: bytes = b"", **options: Any) -> Result:
    """A real process."""
    command = [*XC, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, env=ENVIRONMENT, check=False, **options)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def xc(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The same in this process: arguments in, exit code and both streams out."""

    def call(*arguments: object, stdin: bytes = b"") -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["xc", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        return Result(ended.value.code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted") / "animals"
    write_rows(folder / "train.jsonl", planted(300, seed=1))
    write_rows(folder / "test.jsonl", planted(60, seed=2))
    return folder


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A model and what its training said."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    return folder, run("train", data, "-a", "one_vs_all", "-o", folder, "--set", "epochs=5")


@pytest.fixture(scope="session")
def model(trained: tuple[Path, Result]) -> Path:
    return trained[0]


@pytest.fixture
def own_model(model: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(model, tmp_path / "own"))


def assert_refused(result: Result, *parts: str) -> None:
    """Exit code 2, nothing on stdout, and as the last thing said one sentence that holds all parts."""
    assert (result.code, result.out) == (2, "")
    assert "Traceback" not in result.err
    last = result.err.splitlines()[-1]
    assert last.startswith("Error: ")
    assert all(part in last for part in parts), last


def paths_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


# From a text file to answers.


def test_training_says_what_it_read_and_what_to_type_next(trained: tuple[Path, Result], data: Path) -> None:
    folder, result = trained
    assert (result.code, result.out) == (0, "")
    lines = result.err.splitlines()
    assert lines[0] == "data: animals, 5 labels, documents: 300 train, 60 test"
    assert lines[1].startswith("plan: one_vs_all on c")
    assert lines[-1] == f"next:  xc predict {folder} TEXTS.txt   or   xc evaluate {folder} {data} --bins"
    assert "\x1b" not in result.err  # off a terminal there is no bar
    assert "loss" not in result.err
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_the_model_answers_evaluates_and_shows_itself(model: Path, data: Path) -> None:
    """Each command in a process of its own, and their figures agree."""
    rows = planted(20, seed=3)
    texts = "".join(f"{row['text']}\n" for row in rows).encode()
    answers = answered(run("predict", model, "-k", 2, "--format", "tsv", stdin=texts))
    found = [(answer["text"], sorted([answer["label_1"], answer["label_2"]])) for answer in answers]
    assert found == [(row["text"], row["labels"]) for row in rows]

    measured = run("evaluate", model, data, "--json")
    assert measured.err == ""
    values = json.loads(measured.out)
    assert measured.out.count("\n") == 1
    assert {"P@1", "nDCG@3", "PSP@5", "R@10", "P@1_low", "P@1_high"} <= values.keys()
    assert all(type(value) in (int, float) for value in values.values())
    assert 99 < values["P@1_low"] <= values["P@1"] <= values["P@1_high"] <= 100
    assert values["P@5"] == pytest.approx(40)  # two labels each

    about = json.loads(run("inspect", model, "--json").out)
    assert about["metrics"]["test"].items() <= values.items()
    assert (about["algorithm"], about["settings"]["epochs"], about["n_labels"]) == ("one_vs_all", 5, 5)

    assert run("verify", model) == Result(0, f"{model}: unchanged, 5 labels\n", "")


def test_the_same_figures_from_python(model: Path, data: Path, xc: Callable[..., Result]) -> None:
    report = xclearn.evaluate(xclearn.load(model), xclearn.load_dataset(data))
    assert report.values.items() <= json.loads(xc("evaluate", model, data, "--json").out).items()


def test_evaluation_as_a_table_by_split_and_by_bins(model: Path, data: Path, xc: Callable[..., Result]) -> None:
    table = xc("evaluate", model, data, "--split", "train", "--bins")
    assert table.code == 0
    assert "P@1" in table.out
    assert "adds to P@5" in table.out
    bins = json.loads(xc("evaluate", model, data, "--json", "--bins").out)
    assert sum(bins[f"bin{i}_P@5"] for i in range(1, 6)) == pytest.approx(bins["P@5"])


def test_json_lines_in_json_lines_out(model: Path, tmp_path: Path, xc: Callable[..., Result]) -> None:
    rows = [{"text": 'a "quoted"\ttail\nbark ☃'}, {"text": ""}, {"text": "gallop"}]
    write_rows(tmp_path / "texts.jsonl", rows)
    result = xc("predict", model, tmp_path / "texts.jsonl", "--format", "jsonl", "-k", 2)
    found = [json.loads(line) for line in result.out.splitlines()]
    assert [answer["text"] for answer in found] == [row["text"] for row in rows]
    for answer in found:
        assert list(answer) == ["text", "predictions"]
        assert [list(prediction) for prediction in answer["predictions"]] == [["label", "score"]] * 2
        first, second = (prediction["score"] for prediction in answer["predictions"])
        assert 1 >= first >= second >= 0
    assert found[2]["predictions"][0]["label"] == "horse"
    assert (
        xc("predict", model, "-", "--format", "jsonl", "-k", 2, stdin=(tmp_path / "texts.jsonl").read_bytes()) == result
    )


def test_another_device_gives_the_same_labels_or_is_refused(model: Path, data: Path, xc: Callable[..., Result]) -> None:
    texts = b"purr\n\nbark gallop\n"
    found = [xc("predict", model, "--format", "tsv", *device, stdin=texts) for device in ((), ("--device", "auto"))]
    labels, again = ([labels_of(answer) for answer in answered(result)] for result in found)
    assert labels == again
    assert [len(each) for each in labels] == 3 * [len(TOPICS)]
    for command in (("predict", model), ("evaluate", model, data)):
        refused = xc(*command, "--device", "cuda:99")
        assert (refused.code, refused.out) == (2, "")
        assert "cuda:99" in refused.err


def test_more_labels_than_there_are_is_all_of_them(model: Path, xc: Callable[..., Result]) -> None:
    result = xc("predict", model, "-k", 1000, "--format", "tsv", stdin=b"purr\n")
    (answer,) = answered(result)
    assert sorted(labels_of(answer)) == sorted(TOPICS)


def test_an_empty_text_and_one_of_ten_megabytes(model: Path, xc: Callable[..., Result]) -> None:
    long = "unknown " * 1_250_000 + "bark"
    result = xc("predict", model, "-k", 1, "--format", "jsonl", stdin=f"\n{long}\nbark\n".encode())
    empty, found, short = (json.loads(line) for line in result.out.splitlines())
    assert (empty["text"], len(empty["predictions"])) == ("", 1)
    assert len(found["text"]) > 10_000_000
    assert found["predictions"] == short["predictions"]  # unknown words say nothing
    assert found["predictions"][0]["label"] == "dog"


def test_training_on_a_text_of_ten_megabytes_and_an_empty_one(tmp_path: Path, xc: Callable[..., Result]) -> None:
    rows = [{"text": "word " * 2_000_000, "labels": ["long"]}, {"text": "", "labels": ["empty"]}, *planted(8, seed=5)]
    write_rows(tmp_path / "train.jsonl", rows)
    assert xc("train", tmp_path / "train.jsonl", "-o", tmp_path / "model", *QUICK).code == 0


def test_a_single_label_a_single_file_and_csv(tmp_path: Path, xc: Callable[..., Result]) -> None:
    (tmp_path / "fruit.csv").write_text("text,labels\nred,apple\ngreen,apple\n")
    trained = xc("train", tmp_path / "fruit.csv", "-o", tmp_path / "model", *QUICK)
    assert trained.code == 0
    assert "evaluate" not in trained.err.splitlines()[-1]  # there is no test split to evaluate on
    assert xc("predict", tmp_path / "model", stdin=b"red\n").out.split()[-1] == "apple"


def test_a_config_file_gives_what_the_command_line_leaves_out(
    data: Path, tmp_path: Path, xc: Callable[..., Result]
) -> None:
    config = tmp_path / "quick.toml"
    config.write_text(
        f'algorithm = "one_vs_all"\ndata = "{data}"\n[settings]\nepochs = 1\nembedding_dim = 16\n'
        '[settings.vectoriser]\nkind = "word_piece"\nvocabulary_size = 200\n'
    )
    assert xc("train", "--config", config, "-o", tmp_path / "model", "--set", "epochs=2").code == 0
    settings = json.loads(xc("inspect", tmp_path / "model", "--json").out)["settings"]
    assert (settings["epochs"], settings["vectoriser"]["kind"]) == (2, "word_piece")


# Nothing is lost and nothing half-written.


def test_an_occupied_folder_is_refused_before_training(
    own_model: Path, data: Path, tmp_path: Path, xc: Callable[..., Result]
) -> None:
    before = {path: path.read_bytes() for path in own_model.iterdir()}
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    for out, message in (
        (own_model, "there is already a model"),
        (tmp_path / "notes", "something other than a model is in the way"),
        (tmp_path / "notes" / "mine.txt", "something other than a model is in the way"),
    ):
        result = xc("train", data, "-o", out, *QUICK)
        assert_refused(result, message, str(out))
        assert result.err.count("\n") == 1  # not even the data were read
    assert_refused(
        xc("train", data, "-o", tmp_path / "notes", "--overwrite", *QUICK), "something other than a model is in the way"
    )
    assert {path: path.read_bytes() for path in own_model.iterdir()} == before


def test_overwrite_replaces_the_model(own_model: Path, data: Path, xc: Callable[..., Result]) -> None:
    assert xc("train", data, "-o", own_model, "--overwrite", *QUICK).code == 0
    assert json.loads(xc("inspect", own_model, "--json").out)["settings"]["epochs"] == 2
    assert xc("verify", own_model).code == 0


def test_a_model_keeps_its_texts_when_told_to(tmp_path: Path, data: Path, xc: Callable[..., Result]) -> None:
    assert xc("train", data, "-o", tmp_path / "model", "--keep-texts", *QUICK).code == 0
    kept = load_model(tmp_path / "model").train_texts
    trained_on = [json.loads(line)["text"] for line in (data / "train.jsonl").read_text().splitlines()]
    assert kept is not None
    assert set(kept.texts) <= set(trained_on)
    assert len(kept.texts) > 10


def test_a_demo_replaces_no_other_model(own_model: Path, xc: Callable[..., Result]) -> None:
    assert_refused(xc("demo", "-o", own_model), "there is already a model")


SHORT_DEMO = ('members=["label_tree n_trees=1"]', "refit=false")


@pytest.mark.slow
def test_the_demo_from_nothing_to_predictions(tmp_path: Path) -> None:
    """With one tree; a second demo takes the place of the first."""
    for _ in range(2):
        result = run("demo", *(f"--set={name}" for name in SHORT_DEMO), cwd=tmp_path)
        assert result.code == 0
        assert "label popularity" in result.out
        assert (
            len([line for line in result.out.splitlines() if line[4:9].replace(".", "").isdigit()]) == 30
        )  # ten of three
        assert "xc predict demo-model" in result.out
        assert [path.name for path in tmp_path.iterdir()] == ["demo-model"]
    assert run("predict", tmp_path / "demo-model", stdin=b"a small wild cat\n").code == 0


def limit_files(size: int) -> Callable[[], None]:
    """For a child: a write beyond `size` fails as on a full disk. Python ignores the signal that comes with it."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_while_a_checkpoint_is_written(data: Path, tmp_path: Path) -> None:
    result = run("train", data, "-o", tmp_path / "model", *QUICK, preexec_fn=limit_files(4096))
    assert_refused(result, "model.checkpoint", "writing failed", "File too large")
    assert [path.name for path in paths_in(tmp_path) if path.is_file()] == ["checkpoint.json"]


def test_a_full_disk_while_the_model_is_written(tmp_path: Path) -> None:
    """The model holds the label texts, which the checkpoint does not. With room again, the run is finished."""
    write_rows(tmp_path / "set" / "train.jsonl", planted(50, seed=4))
    write_rows(tmp_path / "set" / "labels.jsonl", [{"label": name, "text": "x " * 100_000} for name in TOPICS])
    command = ("train", tmp_path / "set", "-o", tmp_path / "model", *QUICK)
    assert_refused(run(*command, preexec_fn=limit_files(500_000)), "model", "writing failed", "File too large")
    assert {path.name for path in tmp_path.iterdir()} == {"set", "model.checkpoint"}
    assert run(*command, "--resume").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"set", "model"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_the_log(data: Path, tmp_path: Path, xc: Callable[..., Result]) -> None:
    result = xc("train", data, "-o", tmp_path / "model", *QUICK, "--log", "/dev/full")
    assert_refused(result, "/dev/full: writing failed", "No space left on device")


def test_a_failed_run_is_in_the_way_until_it_is_told_to_be_replaced(
    data: Path, tmp_path: Path, xc: Callable[..., Result]
) -> None:
    failed = run("train", data, "-o", tmp_path / "model", *QUICK, preexec_fn=limit_files(4096))
    assert_refused(failed, "writing failed")
    command = (
        "train",
        data,
        "-o",
        tmp_path / "model",
        "-a",
        "one_vs_all",
        "--set",
        "epochs=1",
        "--set",
        "embedding_dim=8",
    )
    assert_refused(xc(*command), "a checkpoint of an earlier run is in the way", "--resume", "--overwrite")
    assert xc(*command, "--overwrite").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout(model: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*XC, "predict", model], input=b"bark\n", stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
        )
    assert (done.returncode, done.stderr) == (2, b"Error: No space left on device.\n")


def test_a_reader_that_goes_away_is_no_error(model: Path, tmp_path: Path) -> None:
    """As in `xc predict … | head`: the output is far more than a pipe holds."""
    write_rows(tmp_path / "texts.jsonl", planted(5000, seed=6))
    with subprocess.Popen(
        [*XC, "predict", model, tmp_path / "texts.jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


# Ctrl-C.


def start(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """A process that listens to Ctrl-C even where the tests run in the background, which has it ignored."""
    command, pipe = [*XC, *map(str, arguments)], subprocess.PIPE
    listen = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, env=ENVIRONMENT, preexec_fn=listen, **options)


def interrupt(process: subprocess.Popen[bytes]) -> str:
    """Send what Ctrl-C sends; what was said comes back."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    return err.decode()


def wait_for_event(log: Path, event: str) -> None:
    """Until the training log has this event."""
    until = time.monotonic() + 60
    while not (log.exists() and f'"event": "{event}"' in log.read_text()):
        assert time.monotonic() < until, f"no event '{event}' in a minute"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def uninterrupted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted") / "model"
    assert run("train", data, "-o", folder, *SLOW).code == 0
    return folder


@pytest.mark.parametrize("event", ["stage", "epoch"])
def test_interrupted_and_resumed_is_the_same_model(
    event: str, data: Path, uninterrupted: Path, tmp_path: Path, xc: Callable[..., Result]
) -> None:
    """In the first epoch, when there is nothing to go on from but the start, and after it."""
    command = ("train", data, "-o", tmp_path / "model", *SLOW)
    process = start(*command, "--log", tmp_path / "log")
    wait_for_event(tmp_path / "log", event)
    said = interrupt(process).splitlines()[-1]
    assert said == (
        f"interrupted: the checkpoint is in {tmp_path / 'model.checkpoint'}; continue by the same command with --resume"
    )
    assert not (tmp_path / "model").exists()
    assert_refused(xc(*command), "a checkpoint of an earlier run is in the way", "--resume")

    resumed = run(*command, "--resume")
    assert resumed.code == 0
    assert ("resumed: stage train after epoch" in resumed.err) == (event == "epoch")
    tensors = [folder / "tensors.safetensors" for folder in (uninterrupted, tmp_path / "model")]
    assert tensors[0].read_bytes() == tensors[1].read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "log"}  # the checkpoint has done its work


def test_interrupted_while_data_are_read(tmp_path: Path) -> None:
    """The data come through a pipe that stays open, so the process is surely reading when the signal arrives."""
    os.mkfifo(tmp_path / "train.jsonl")
    process = start("train", tmp_path / "train.jsonl", "-o", tmp_path / "model")
    with open(tmp_path / "train.jsonl", "wb") as writer:  # waits for the reader
        writer.write(b'{"text": "bark", "labels": ["dog"]}\n')
        writer.flush()
        said = interrupt(process)
    assert said == "interrupted before the first checkpoint: run the same command again\n"
    assert {path.name for path in tmp_path.iterdir()} == {"train.jsonl"}


def test_interrupted_while_predicting(model: Path) -> None:
    process = start("predict", model, stdin=subprocess.PIPE)
    assert process.stdin is not None
    for _ in range(5000):  # more than a block, so that an answer shows that it is at work
        process.stdin.write(b"bark\n")
    process.stdin.flush()
    assert process.stdout is not None
    assert process.stdout.readline() == b"bark\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")


# A terminal.


def test_on_a_terminal_there_is_a_bar_and_stdout_stays_clean(data: Path, tmp_path: Path) -> None:
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [*XC, "train", data, "-o", tmp_path / "model", *QUICK],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=ENVIRONMENT,
    )
    os.close(terminal)
    shown = b""
    try:
        while piece := os.read(screen, 65536):
            shown += piece
    except OSError:  # how Linux says that the other side is closed
        pass
    out, _ = process.communicate(timeout=60)
    os.close(screen)
    assert (process.returncode, out) == (0, b"")
    assert b"\x1b[" in shown
    assert b"epoch 2 loss" in shown


def test_texts_typed_at_a_terminal_are_answered_one_by_one(model: Path) -> None:
    keyboard, terminal = pty.openpty()
    process = start("predict", model, "-k", 1, "--format", "tsv", stdin=terminal)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stderr.readline() == b"Type a text and press Enter; Ctrl-D ends.\n"
    for text, answers in (("bark", [["text", "label_1"], ["bark", "dog"]]), ("purr", [["purr", "cat"]])):
        os.write(keyboard, f"{text}\n".encode())
        for answer in answers:
            assert process.stdout.readline().decode().split("\t")[:2] == answer
    os.write(keyboard, b"\x04")
    assert process.wait(timeout=60) == 0
    os.close(keyboard)
    os.close(terminal)


# What bad input gets.

XC_FEATURES = "2 3\n0:1 1:0.5\n2:1\n"
BAD_DATA: dict[str, tuple[dict[str, bytes | str], list[str]]] = {
    "an empty file": ({"train.jsonl": ""}, ["train.jsonl", "empty"]),
    "an empty file with a header to come": ({"trn_X_Xf.txt": "", "trn_X_Y.txt": "2 2\n"}, ["trn_X_Xf.txt", "empty"]),
    "a wrong header": (
        {"trn_X_Xf.txt": XC_FEATURES, "trn_X_Y.txt": "two 2\n0:1\n1:1\n"},
        ["trn_X_Y.txt:1", "wrong header", "'two 2'", "'rows columns' as whole numbers"],
    ),
    "fewer rows than the header says": ({"train.txt": "3 3 2\n0 0:1\n1 1:1\n"}, ["declares 3 rows", "2 rows"]),
    "a label id out of range": ({"train.txt": "2 3 2\n0 0:1\n2 1:1\n"}, ["train.txt:3", "got 2", "0 to 1"]),
    "a label row out of range": (
        {"train.jsonl": '{"text": "a", "labels": [0, 1]}', "labels.jsonl": '{"label": "x"}'},
        ["train.jsonl:1", "got 1", "0 to 0"],
    ),
    "a feature that is not a number": (
        {"train.txt": "2 3 2\n0 0:1\n1 1:nan\n"},
        ["train.txt:3", "not a finite number", "nan"],
    ),
    "broken UTF-8": (
        {"train.jsonl": b'{"text": "a", "labels": ["x"]}\n{"text": "\xff", "labels": ["x"]}\n'},
        ["train.jsonl:2", "not UTF-8"],
    ),
    "a gzip file cut short": (
        {"train.jsonl.gz": gzip.compress(b'{"text": "a", "labels": ["x"]}\n' * 100)[:-20]},
        ["train.jsonl.gz:", "cannot be read further"],
    ),
    "a CSV without the columns": (
        {"train.csv": "name,kind\na,b\n"},
        ["train.csv:2", "'text' and 'labels'", "name, kind"],
    ),
    "no labels at all": ({"train.jsonl": '{"text": "a", "labels": []}'}, ["train.jsonl", "no document has a label"]),
    "no words at all": ({"train.jsonl": '{"text": "", "labels": ["x"]}'}, ["no word"]),
    "no training file": ({"test.jsonl": '{"text": "a", "labels": ["x"]}'}, ["no training file"]),
}


@pytest.mark.parametrize(("files", "parts"), BAD_DATA.values(), ids=BAD_DATA.keys())
def test_bad_data(files: dict[str, bytes | str], parts: list[str], tmp_path: Path, xc: Callable[..., Result]) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = paths_in(tmp_path)
    assert_refused(xc("train", tmp_path, "-o", tmp_path / "model", *QUICK), *parts)
    assert paths_in(tmp_path) == before


def test_a_dense_feature_that_is_not_a_number(tmp_path: Path, xc: Callable[..., Result]) -> None:
    np.save(tmp_path / "train_X.npy", np.array([[1.0], [np.nan]]))
    (tmp_path / "train_Y.txt").write_text("2 1\n0:1\n0:1\n")
    assert_refused(xc("train", tmp_path, "-o", tmp_path / "model"), "train_X.npy:2", "not a finite number")


BAD_REQUESTS: dict[str, tuple[list[str], list[str]]] = {
    "a missing file": (["nowhere.jsonl"], ["no such file, folder or bundled data set", "'nowhere.jsonl'"]),
    "nearly the name of a bundled set": (["wordnet-relatd"], ["Did you mean 'wordnet-related'?"]),
    "no data": ([], ["no data given"]),
    "an unknown algorithm": (["DATA", "-a", "one_vs_al"], ["unknown algorithm", "Did you mean 'one_vs_all'?"]),
    "an unknown setting": (["DATA", "--set", "epoch=2"], ["unknown setting", "Did you mean 'epochs'?"]),
    "a setting of the wrong type": (["DATA", "--set", "epochs=two"], ["blend.epochs", "'two'", "allowed: int"]),
    "a setting out of range": (["DATA", "--set", "epochs=0"], ["out of range", "got 0", "at least 1"]),
    "a setting without a value": (["DATA", "--set", "epochs"], ["--set", "name=value"]),
    "a device that is not there": (["DATA", "--device", "cuda:77"], ["the device is not available", "'cuda:77'"]),
    "a config file that is not there": (["DATA", "--config", "nowhere.toml"], ["nowhere.toml", "cannot be read"]),
    "nothing to resume": (["DATA", "--resume"], ["model.checkpoint", "nothing to resume"]),
}


@pytest.mark.parametrize(("arguments", "parts"), BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
def test_bad_requests(
    arguments: list[str],
    parts: list[str],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    xc: Callable[..., Result],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(xc("train", *(str(data) if word == "DATA" else word for word in arguments)), *parts)
    assert paths_in(tmp_path) == set()


def test_a_refusal_in_a_process_of_its_own(data: Path, tmp_path: Path) -> None:
    result = run("train", data, "-o", tmp_path / "model", "--set", "epoch=2")
    assert result == Result(2, "", "Error: blend: unknown setting; got 'epoch'. Did you mean 'epochs'?\n")


def test_what_the_system_refuses(data: Path, tmp_path: Path) -> None:
    log = run("train", data, "-o", tmp_path / "model", "--log", tmp_path / "nowhere" / "log")
    assert_refused(log, "nowhere/log", "No such file or directory")
    assert_refused(run("train", data, "-o", "/dev/null/model"), "/dev/null/model", "Not a directory")
    assert paths_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ('algoritm = "one_vs_all"', ["unknown key", "Did you mean 'algorithm'?"]),
        ("algorithm = 3", ["wrong type of 'algorithm'", "got 3", "a text"]),
        ("data = 3", ["wrong type of 'data'", "a text"]),
        ("settings = 3", ["wrong type of 'settings'", "a table"]),
        ("[settings]\nepoch = 1", ["unknown setting", "Did you mean 'epochs'?"]),
        ("epochs =", ["not a TOML file"]),
        (b"\xff", ["not a TOML file"]),
    ],
)
def test_bad_config_files(
    content: str | bytes, parts: list[str], data: Path, tmp_path: Path, xc: Callable[..., Result]
) -> None:
    (tmp_path / "c.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert_refused(xc("train", data, "--config", tmp_path / "c.toml", "-o", tmp_path / "model"), *parts)


@pytest.mark.parametrize(
    ("arguments", "stdin", "parts"),
    [
        (["-k", "0"], b"a\n", ["-k", "at least 1", "got 0"]),
        (["-k", "-3"], b"a\n", ["at least 1", "got -3"]),
        (["--format", "xml"], b"a\n", ["--format", "'xml'", "table, jsonl, tsv"]),
        (["nowhere.txt"], b"", ["nowhere.txt", "no such file"]),
        (["/"], b"", ["-o", "the output of many files must be a folder"]),
        ([], b"a\nb\xff\n", [":2", "not UTF-8"]),
        ([], b'{"text": "a"}\n{"title": "b"\n', [":2", "not a JSON object"]),
        ([], b'{"words": "a"}\n', [":1", "no 'text' here", "'words'"]),
        ([], b'{"text": 3}\n', [":1", "must be a text", "got 3"]),
    ],
)
def test_bad_questions(
    arguments: list[str], stdin: bytes, parts: list[str], model: Path, xc: Callable[..., Result]
) -> None:
    assert_refused(xc("predict", model, *arguments, stdin=stdin), *parts)


def test_texts_for_a_model_of_features(tmp_path: Path, xc: Callable[..., Result]) -> None:
    (tmp_path / "train.txt").write_text("2 3 2\n0 0:1\n1 1:1\n")
    assert xc("train", tmp_path / "train.txt", "-o", tmp_path / "model", *QUICK).code == 0
    assert_refused(xc("predict", tmp_path / "model", stdin=b"a\n"), "got 'texts'", "allowed: sparse features")
    asked = xc("train", tmp_path / "train.txt", "-o", tmp_path / "other", "--keep-texts", *QUICK)
    assert_refused(asked, "--keep-texts", "only texts can be kept")


@pytest.mark.parametrize("file", ["tensors.safetensors", "model.json", "README.md"])
@pytest.mark.parametrize("command", ["predict", "evaluate", "inspect", "verify"])
def test_a_model_with_a_changed_byte(
    file: str, command: str, own_model: Path, data: Path, xc: Callable[..., Result]
) -> None:
    content = bytearray((own_model / file).read_bytes())
    place = content.find(b"one_vs_all") if file != "tensors.safetensors" else len(content) // 2
    content[place] ^= 1
    (own_model / file).write_bytes(content)
    rest = [data] if command == "evaluate" else []
    assert_refused(xc(command, own_model, *rest, stdin=b"a\n"), f"own/{file}", "changed after")


@pytest.mark.parametrize("file", ["tensors.safetensors", "model.json", "README.md"])
def test_a_model_with_a_missing_or_a_cut_file(file: str, own_model: Path, xc: Callable[..., Result]) -> None:
    content = (own_model / file).read_bytes()
    (own_model / file).write_bytes(content[: len(content) // 2])
    assert_refused(xc("predict", own_model, stdin=b"a\n"), f"own/{file}")
    (own_model / file).unlink()
    assert_refused(xc("predict", own_model, stdin=b"a\n"), "own")


def test_a_folder_that_holds_no_model(data: Path, tmp_path: Path, xc: Callable[..., Result]) -> None:
    assert_refused(xc("predict", data, stdin=b"a\n"), "no model here", "xc train -o")
    (tmp_path / "model.json").write_text('{"format": "another"}')
    assert_refused(xc("inspect", tmp_path), "not of an xclearn model")


def test_evaluation_that_cannot_be(model: Path, data: Path, xc: Callable[..., Result]) -> None:
    assert_refused(xc("evaluate", model, data, "--split", "dev"), "no such split", "'dev'", "train, test")
    assert_refused(xc("evaluate", model, data, "--filter-rule", "none"), "filter rule", "both, predictions")


def bound_by_permissions() -> None:
    """For a child: root loses the right to read what nobody may read."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if LIBC.prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
                raise PermissionError


def test_what_may_not_be_read_or_written(data: Path, own_model: Path, tmp_path: Path) -> None:
    secret, closed = tmp_path / "secret.jsonl", tmp_path / "closed"
    secret.touch(mode=0)
    closed.mkdir(mode=0o500)
    (own_model / "model.json").chmod(0)
    try:
        refused = run("train", secret, "-o", tmp_path / "model", preexec_fn=bound_by_permissions)
    except subprocess.SubprocessError:
        pytest.skip("root cannot give up its rights here")
    assert_refused(refused, "secret.jsonl", "Permission denied")
    for arguments, part in (
        (("predict", own_model, secret), "own"),
        (("train", data, "-o", closed / "model", *QUICK), "closed/model"),
    ):
        assert_refused(run(*arguments, preexec_fn=bound_by_permissions), part, "Permission denied")
    assert paths_in(closed) == set()


@pytest.mark.parametrize("arguments", [["nonsense"], ["train", "--nonsense"], ["predict"], ["predict", "m", "-k", "x"]])
def test_what_typer_refuses(arguments: list[str], xc: Callable[..., Result]) -> None:
    result = xc(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "Usage: xc" in result.err
    assert "Traceback" not in result.err
