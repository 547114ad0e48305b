"""What several runs of a reference have told alike is asked for again."""

import json

from envs.judging.record import merged, of_step, unverified

A, B, C = ["a.py", 1, 4, 0], ["a.py", 2, 4, 0], ["a.py", 3, 4, 0]
FIRST = {
    "tests": {"one": [A, B], "two": [C], "gone": []},
    "odd": [],
    "replaced": ["time.time"],
    "unverified": ["gone", "two"],
}
SECOND = {"tests": {"one": [A], "two": [C]}, "odd": [B], "unverified": ["two"]}


def test_a_record_holds_what_each_repeat_told():
    record = merged([[FIRST], [SECOND]])
    (call,) = json.loads(record)
    assert call == {"tests": {"one": [A], "two": [C]}, "odd": [B], "replaced": ["time.time"], "unverified": ["two"]}
    assert unverified(record) == ("two",)


def test_repeats_that_called_a_runner_another_number_of_times_make_no_record():
    assert merged([[FIRST], [FIRST, SECOND]]) == merged([]) == merged([[{}]]) == ""
    assert unverified("") == ()


def test_the_calls_of_a_step_are_asked_for_in_that_step_alone():
    record = merged([[{"step": "one", **FIRST}, {"step": "two", **SECOND}]])
    (call,) = json.loads(of_step(record, "two"))
    assert (call["step"], call["tests"]) == ("two", {"one": [A], "two": [C]})
    assert json.loads(of_step(record, "three")) == json.loads(of_step("", "one")) == []
