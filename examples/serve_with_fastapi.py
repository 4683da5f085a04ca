"""A server that captures before it is ready, never while it answers, and reports how its graphs do.

pip install fastapi uvicorn
uvicorn --app-dir examples serve_with_fastapi:app
curl localhost:8000/embed -H 'content-type: application/json' -d '{"ids": [3, 1, 4]}'
curl localhost:8000/metrics
"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI, HTTPException, Response
from pydantic import BaseModel
from torch import nn

import rocsolid as rs

WORDS, WIDTH, SIZES = 100, 16, (8, 16, 32)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Embedder(nn.Module):
    """Tokens in, one vector out; the mask keeps padding out of the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The mean of what the tokens became."""
        x = nn.functional.gelu(self.mix(self.embed(ids))) * mask[..., None]
        return x.sum(1) / mask.sum(1, keepdim=True)


def tensors(ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """A request as the model takes it."""
    return torch.tensor([ids], device=device), torch.ones(1, len(ids), device=device)


fast = rs.capture(
    Embedder().to(device).eval(),
    buckets={"ids": rs.Bucket(dim=1, sizes=SIZES), "mask": rs.Bucket(dim=1, sizes=SIZES, pad=0)},
    backend="device" if device == "cuda" else "record",
    verify=rs.every(1000),  # now and then a replay is held against eager again
)
one_at_a_time = threading.Lock()  # one model on one device; FastAPI calls `embed` from a pool of threads


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Capture all sizes before the first request; from then on a call replays or runs eagerly."""
    with torch.no_grad():
        fast.warm([(tensors([1] * size), {}) for size in SIZES])
    fast.freeze()
    yield
    print(fast.report())
    fast.close()


app = FastAPI(lifespan=lifespan)


class Request(BaseModel):
    """What a client sends."""

    ids: list[int]


@app.post("/embed")
def embed(request: Request) -> list[float]:
    """One vector."""
    if not request.ids or not all(0 <= word < WORDS for word in request.ids):
        raise HTTPException(422, f"ids are numbers from 0 to {WORDS - 1}, at least one")
    with one_at_a_time, torch.no_grad():
        vector: list[float] = fast(*tensors(request.ids))[0].tolist()
    return vector


@app.get("/metrics")
def metrics() -> Response:
    """For Prometheus: replays, eager calls by reason, checks, memory."""
    lines = [f"{name} {value}" for name, value in fast.report().counters().items()]
    return Response("\n".join(lines) + "\n", media_type="text/plain")


@app.get("/health")
def health() -> dict[str, str]:
    """Unhealthy when most calls run in eager."""
    warning = fast.report().warning
    if warning:
        raise HTTPException(503, warning)
    return {"status": "ok"}
