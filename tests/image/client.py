"""Plays half an episode before the container is replaced, and the rest after.

python client.py begin ADDRESS
python client.py finish ADDRESS SESSION_ID

The server's token stands in RAILGYM_TOKEN.
"""

import os
import sys

import railgym

TASK = "typewriter/reference/dog"


def connect(address):
    return railgym.connect(address, startup_seconds=30, token=os.environ["RAILGYM_TOKEN"])


def begin(address):
    """Prints the session, which stays open."""
    with connect(address) as client:
        session = client.session(task_id=TASK)
        session.reset(seed=0)
        session.call("type_letter", letter="d")
        print(session.id)


def finish(address, session_id):
    with connect(address) as client, client.resume(session_id) as session:
        assert session.steps == 1, f"expected the session at step 1, got {session.steps}"
        session.call("type_letter", letter="o")
        session.call("type_letter", letter="g")
        reward = session.final("done").reward
        assert reward == 1.0, f"expected the reward 1.0, got {reward}"
        episode_id = f"{session_id}.{session.episode}"
        [score] = client.score([episode_id])
    assert score.outcome == "VERIFIED", f"expected it to verify, got {score}"
    print(f"resumed at step 1, finished with reward {reward}, verified by replay")


{"begin": begin, "finish": finish}[sys.argv[1]](*sys.argv[2:])
