"""A server that captures its CUDA graphs at start-up, never during a request, and exports metrics about them.

Without a GPU, the backend "record" replays the operators of each call on the CPU: it works the same way, but is not faster.

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
from rocsolid.integrations.metrics import prometheus_text

VOCABULARY, WIDTH, SIZES = 100, 16, (8, 16, 32)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Embedder(nn.Module):
    """Computes one vector from tokens; the mask excludes padding from the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the mean over the tokens."""
        x = nn.functional.gelu(self.mix(self.embed(ids))) * mask[..., None]
        return x.sum(1) / mask.sum(1, keepdim=True)


def tensors(ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the model's inputs for a request."""
    return torch.tensor([ids], device=device), torch.ones(1, len(ids), device=device)


fast = rs.capture(
    Embedder().to(device).eval(),
    buckets={"ids": rs.Bucket(dim=1, sizes=SIZES), "mask": rs.Bucket(dim=1, sizes=SIZES, pad=0)},
    backend="device" if device == "cuda" else "record",
    verify=rs.every(1000),  # compare every 1000th replay with eager
)
replay_lock = threading.Lock()  # FastAPI calls `embed` from several threads


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Capture all sizes before the first request; after that, a call replays or falls back to eager."""
    with torch.no_grad():
        fast.warm([(tensors([1] * size), {}) for size in SIZES])
    fast.freeze()
    yield
    print(fast.report())
    fast.close()


app = FastAPI(lifespan=lifespan)


class Request(BaseModel):
    """The body of a request."""

    ids: list[int]


@app.post("/embed")
def embed(request: Request) -> list[float]:
    """Return the embedding of a list of tokens."""
    if not request.ids or not all(0 <= token < VOCABULARY for token in request.ids):
        raise HTTPException(422, f"ids must be a non-empty list of numbers from 0 to {VOCABULARY - 1}")
    with replay_lock, torch.no_grad():
        vector: list[float] = fast(*tensors(request.ids))[0].tolist()
    return vector


@app.get("/metrics")
def metrics() -> Response:
    """Return metrics for Prometheus: replays, eager calls by reason, verifications, memory."""
    return Response(prometheus_text(embed=fast), media_type="text/plain; version=0.0.4")


@app.get("/health")
def health() -> dict[str, str]:
    """Return 503 if most calls fall back to eager."""
    warning = fast.report().warning
    if warning:
        raise HTTPException(503, warning)
    return {"status": "ok"}
