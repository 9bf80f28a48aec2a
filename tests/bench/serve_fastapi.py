"""The typewriter served by FastAPI: JSON over HTTP, one POST a step."""

import itertools

from fastapi import FastAPI, HTTPException
from paper import Paper
from pydantic import BaseModel
from serving import serve


class Reset(BaseModel):
    target: str


class Letter(BaseModel):
    letter: str


class Sheet(BaseModel):
    paper: str
    reward: float = 0.0
    done: bool = False


app = FastAPI()
papers: dict[int, Paper] = {}
numbers = itertools.count(1)


@app.post("/sessions")
async def create() -> int:
    number = next(numbers)
    papers[number] = Paper()
    return number


@app.post("/sessions/{number}/reset")
async def reset(number: int, asked: Reset) -> Sheet:
    return Sheet(paper=_find(number).begin(asked.target))


@app.post("/sessions/{number}/step")
async def step(number: int, action: Letter) -> Sheet:
    paper, reward, done = _find(number).type(action.letter)
    return Sheet(paper=paper, reward=reward, done=done)


def _find(number: int) -> Paper:
    if number not in papers:
        raise HTTPException(404, f"no session {number}")
    return papers[number]


if __name__ == "__main__":
    serve(app, "fastapi")
