"""Which hosts ran an application's tasks, as Spark's history server tells it."""

from spark_history import WARM_UP, Application, ended_applications

ANSWERS = {
    "applications": [
        {"id": "b", "name": "gate", "attempts": [{"completed": True, "startTime": "2"}]},
        {"id": "a", "name": "build", "attempts": [{"completed": True, "startTime": "1"}]},
        {"id": "c", "name": "runs", "attempts": [{"completed": False, "startTime": "3"}]},
    ],
    "applications/a/jobs": [
        {"jobGroup": WARM_UP, "stageIds": [0]},
        {"jobGroup": "x", "stageIds": [1]},
        {"stageIds": [2]},
    ],
    "applications/a/stages?status=complete": [
        {"stageId": 0, "attemptId": 0},
        {"stageId": 1, "attemptId": 1},
        {"stageId": 2, "attemptId": 0},
    ],
    "applications/a/stages/1/1/taskList?length=10000": [
        {"host": "one", "status": "SUCCESS"},
        {"host": "two", "status": "SUCCESS"},
        {"host": "two", "status": "FAILED"},
    ],
    "applications/a/stages/2/0/taskList?length=10000": [{"host": "two", "status": "SUCCESS"}],
    "applications/b/jobs": [],
    "applications/b/stages?status=complete": [],
}


def test_tasks_that_succeeded_are_counted_by_host_without_those_that_only_start_workers():
    assert ended_applications(ANSWERS.__getitem__) == [
        Application("build", {"one": 1, "two": 2}),
        Application("gate", {}),
    ]
