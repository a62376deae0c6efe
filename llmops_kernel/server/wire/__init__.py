"""Pydantic models of requests and responses; `extension/src/wire.ts` is written from them."""

from __future__ import annotations

from pydantic import BaseModel

from llmops_kernel.server.wire import chat, clusters, common, configs, live, run_table, runs

WIRE_MODELS: tuple[type[BaseModel], ...] = (
    *common.WIRE_MODELS,
    *clusters.WIRE_MODELS,
    *configs.WIRE_MODELS,
    *configs.DATA_MODELS,
    *runs.WIRE_MODELS,
    *run_table.WIRE_MODELS,
    *runs.SCORING_MODELS,
    *chat.WIRE_MODELS,
    *live.WIRE_MODELS,
)
