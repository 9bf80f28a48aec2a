"""Tasks: read with file and line in every error, and sound when they are played."""

import json

import pytest
from playing import make_task

from env_server.arguments import canonical_json
from env_server.gold import GoldError, play_gold
from env_server.lint import lint
from env_server.registry import Registry
from env_server.tasks import LEVELS, Task, TaskError, bundled_folder, read_tasks, scan_tasks

REGISTRY = Registry()
TASKS = REGISTRY.tasks
TOOL_ENVS = sorted(env_id for env_id, entry in REGISTRY.envs.items() if not entry.is_plain)

ROW = json.loads(make_task().row())
MATH = {
    "env_id": "railgym/MultiverseMath-v1",
    "options": {},
    "max_steps": 5,
    "expected": "add(2, 3)",
    "validators": [{"name": "answer_number"}],
    "gold": [{"tool": "add", "arguments": {"a": 2, "b": 3}}, {"final": "$expected"}],
}


def write(path, *lines):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text(text + "\n", encoding="utf-8")
    return path


# Reading


def test_rows_are_read_by_id_from_files_and_folders(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    one = write(tmp_path / "deep" / "er" / "one.jsonl", ROW, "", "  ")
    two = write(tmp_path / "two.jsonl", {**ROW, "task_id": "test/two"})
    write(tmp_path / "notes.txt", "not a task")
    assert [*read_tasks([tmp_path])] == ["test/dog", "test/two"]
    assert [*read_tasks([two, one])] == ["test/two", "test/dog"]
    assert [*read_tasks([tmp_path, one])] == ["test/dog", "test/two"]
    two.write_bytes(two.read_bytes().replace(b"\n", b"\r\n"))
    assert [*read_tasks([two])] == ["test/two"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"task_id": "a"', "expected a JSON object, got text that is not JSON"),
        ("[]", "expected a JSON object, got an array"),
        ('{"task_id": "a", "task_id": "b"}', "got 'task_id' twice"),
        ({"task_id": "a"}, "env_id: Field required"),
        ({**ROW, "taks": 1}, "taks: Extra inputs are not permitted; got 1"),
        ({**ROW, "max_steps": "8"}, 'max_steps: Input should be a valid integer; got "8"'),
        ({**ROW, "max_steps": 0}, "max_steps: Input should be greater than or equal to 1"),
        ({**ROW, "level": "L4"}, "level: Input should be 'L1', 'L2' or 'L3'"),
        ({**ROW, "gold": []}, "gold: "),
        ({**ROW, "gold": [{"call": "x"}]}, "gold.0"),
        ({**ROW, "validators": []}, "validators: "),
        ({**ROW, "validators": [{"name": "is_right"}]}, "expected a validator of answer_equals"),
        ({**ROW, "validators": [{"field": "paper"}]}, "got None"),
        ({**ROW, "validators": [{"name": ["state_equals"]}]}, "got ['state_equals']"),
        ({**ROW, "validators": [{"name": {}}]}, "got {}"),
        ('{"max_steps": NaN}', "expected a finite number, got NaN"),
        ({**ROW, "instruction": "x" * 70_000}, "at most 65,536 characters"),
    ],
)
def test_a_wrong_line_is_named_with_its_file_and_number(line, message, tmp_path):
    file = write(tmp_path / "tasks.jsonl", ROW, "", line)
    with pytest.raises(TaskError) as caught:
        read_tasks([file])
    assert str(caught.value).startswith(f"{file}:3: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 600


def test_an_id_that_stands_twice_is_named_with_both_places(tmp_path):
    one = write(tmp_path / "one.jsonl", ROW)
    two = write(tmp_path / "two.jsonl", {**ROW, "task_id": "test/two"}, ROW)
    with pytest.raises(TaskError, match=f"{two}:2: task id 'test/dog' stands at {one}:1 already"):
        read_tasks([tmp_path])


def test_a_file_that_is_not_utf8_is_named_with_the_byte(tmp_path):
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(b'{"task_id": "caf\xe9"}\n')
    with pytest.raises(TaskError, match=f"{file}: expected UTF-8, got .* at byte 16"):
        read_tasks([file])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TaskError, match=r"none.jsonl: expected a file or folder of tasks: No such"):
        read_tasks([tmp_path / "none.jsonl"])


def test_a_scan_goes_on_after_an_error(tmp_path):
    file = write(tmp_path / "tasks.jsonl", "{", ROW, "[]")
    found = dict(scan_tasks([file]))
    assert [*found] == [f"{file}:{number}" for number in (1, 2, 3)]
    assert isinstance(found[f"{file}:2"], Task)
    assert isinstance(found[f"{file}:3"], TaskError)


def test_equal_digests_mean_the_same_task():
    task = Task.model_validate(ROW)
    shuffled = Task.model_validate(
        dict(reversed([*{**ROW, "tags": [], "allowed_tools": []}.items()]))
    )
    assert task.sha256 == shuffled.sha256 == Task.model_validate_json(task.row()).sha256
    changes = {"instruction": "Type it!", "max_steps": 9, "tags": ["x"], "options": {"target": "a"}}
    digests = {Task.model_validate({**ROW, key: new}).sha256 for key, new in changes.items()}
    assert len(digests | {task.sha256}) == 5


# The bundled tasks


def test_bundled_tasks_are_sound():
    findings = [finding for task in TASKS.values() for finding in lint(task, REGISTRY)]
    assert not findings, "\n".join(f"{task_id}: {message}" for task_id, message in findings)


@pytest.mark.parametrize("env_id", TOOL_ENVS)
@pytest.mark.parametrize("level", LEVELS)
def test_each_level_of_each_environment_has_20_tasks(env_id, level):
    assert sum((task.env_id, task.level) == (env_id, level) for task in TASKS.values()) >= 20


def test_bundled_tasks_have_an_id_and_a_digest_each():
    places = [place for place, _ in scan_tasks([bundled_folder()])]
    assert len(places) == len(TASKS) == len({task.sha256 for task in TASKS.values()})
    problems = {(t.env_id, t.instruction, canonical_json(t.options)) for t in TASKS.values()}
    assert len(problems) == len(TASKS)
    assert {task_id: task.sha256 for task_id, task in Registry().tasks.items()} == {
        task_id: task.sha256 for task_id, task in TASKS.items()
    }


@pytest.mark.parametrize("env_id", TOOL_ENVS)
def test_gold_is_resolved_to_the_same_actions_each_time(env_id):
    for task in TASKS.values():
        if task.env_id != env_id:
            continue
        one, replies = play_gold(task, REGISTRY)
        other, again = play_gold(task, Registry(TASKS))
        assert one.actions == other.actions, task.task_id
        assert replies == again, task.task_id
        assert "$" not in canonical_json([list(action) for action in one.actions]), task.task_id
        assert len(task.gold) <= task.max_steps, task.task_id


# Gold


@pytest.mark.parametrize(
    ("argument", "value"),
    [({"$step": 1}, 6.2), ({"$step": 1, "path": []}, 6.2), ([{"$step": 1}], [6.2]), (7, 7)],
)
def test_an_argument_may_be_what_an_earlier_step_returned(argument, value):
    gold = [MATH["gold"][0], {"tool": "negate", "arguments": {"a": argument}}]
    episode, _ = play_gold(make_task(**{**MATH, "gold": gold}), REGISTRY)
    assert json.loads(episode.actions[1].arguments_json) == {"a": value}


@pytest.mark.parametrize(
    "reference",
    [
        {"$step": 2},
        {"$step": 3},
        {"$step": 0},
        {"$step": -1},
        {"$step": "1"},
        {"$step": None},
        {"$step": [1]},
        {"$step": 1, "path": [0]},
        {"$step": 1, "path": ["id"]},
        {"$step": 1, "path": 7},
    ],
)
def test_a_reference_to_nothing_is_named(reference):
    gold = [MATH["gold"][0], {"tool": "negate", "arguments": {"a": reference}}]
    with pytest.raises(GoldError, match="gold step 2: nothing stands at"):
        play_gold(make_task(**{**MATH, "gold": gold}), REGISTRY)


def test_a_reference_to_a_fault_is_named():
    gold = [
        {"tool": "divide", "arguments": {"a": 1, "b": 0}},
        {"tool": "negate", "arguments": {"a": {"$step": 1}}},
    ]
    with pytest.raises(GoldError, match="gold step 2: nothing stands at"):
        play_gold(make_task(**{**MATH, "gold": gold}), REGISTRY)


def test_gold_that_goes_on_after_the_end_is_named():
    with pytest.raises(GoldError, match="gold step 2: the episode ended at step 1"):
        play_gold(make_task(gold=[{"final": ""}, {"final": ""}]), REGISTRY)


def test_an_expected_answer_needs_something_expected():
    with pytest.raises(GoldError, match="expects nothing"):
        play_gold(make_task(**{**MATH, "expected": None}), REGISTRY)


# Lint


UNSOUND = {
    "a task that is sound": ({}, None),
    "gold that faults": (
        {"gold": [{"tool": "type_letter", "arguments": {"letter": "do"}}, *ROW["gold"]]},
        "gold step 1 faults: tool_error",
    ),
    "gold with a tool that is not there": (
        {"gold": [{"tool": "type", "arguments": {}}, *ROW["gold"]]},
        "gold step 1 faults: unknown_tool",
    ),
    "gold that earns nothing": (
        {"gold": ROW["gold"][1:]},
        "gold earns 0.0 and ends final; failed: state_equals",
    ),
    "gold without an end": ({"gold": ROW["gold"][:-1]}, "gold earns 0.0 and ends None"),
    "gold that is cut off": ({"max_steps": 3}, "gold step 4: the episode ended at step 3"),
    "doing nothing is enough": (
        {"validators": [{"name": "max_calls", "n": 9}]},
        "an agent that is idle earns 1.0",
    ),
    "acting at random is enough": (
        {"validators": [{"name": "must_call", "any_of": ["type_letter"]}], "max_steps": 30},
        "an agent that is random earns 1.0",
    ),
    "the instruction holds the answer": (
        {**MATH, "instruction": "Add 2 and 3 (it makes 6.2)."},
        "the instruction holds the answer '6.2'",
    ),
    "an environment that is not there": (
        {"env_id": "railgym/Typewritter-v1"},
        "nearest: railgym/Typewriter-v1",
    ),
    "an environment without tools": (
        {"env_id": "railgym/TypewriterPolicy-v1"},
        "expected tools of",
    ),
    "an allowed tool that is not there": ({"allowed_tools": ["type"]}, "expected tools of"),
    "a judged tool that is not there": (
        {"validators": [*ROW["validators"], {"name": "must_not_call", "tools": ["type"]}]},
        "must_not_call: expected tools of the environment, got ['type']",
    ),
    "an option that is not there": (
        {"options": {"tarhet": "dog"}},
        "expected one of target, finish",
    ),
    "a validator with a wrong parameter": (
        {"validators": [{"name": "state_equals", "feild": "paper"}]},
        "validator state_equals: expected field, part; got feild",
    ),
    "a validator without a parameter that it needs": (
        {"validators": [{"name": "max_calls"}]},
        "validator max_calls: expected n; got",
    ),
    "a field that the state does not have": (
        {"validators": [{"name": "state_equals", "field": "papers"}]},
        "fails: KeyError: 'papers'",
    ),
    "nothing expected of a number": (
        {**MATH, "expected": None, "gold": [{"final": "5"}]},
        "fails: TypeError",
    ),
    "a text expected of a number": (
        {"validators": MATH["validators"], "gold": [{"final": "5"}]},
        "fails: ValueError",
    ),
    "an expression that has no value": (
        {"expected": "targets"},
        "expected the expression 'target'",
    ),
    "a reference to nothing": (
        {"gold": [{"tool": "type_letter", "arguments": {"letter": {"$step": 0}}}]},
        "gold step 1: nothing stands at",
    ),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_lint_finds(name):
    changes, message = UNSOUND[name]
    found = lint(make_task(**changes), REGISTRY)
    assert {finding.task_id for finding in found} <= {"test/dog"}
    if message is None:
        assert not found
    else:
        assert message in " | ".join(finding.message for finding in found)
