"""Feeds and their subscribers: one round at a time, slow browsers skipped, none forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.server.wire.common import Trouble, Wire, trouble
from llmops_kernel.server.wire.live import LivePayloads, Nothing

# --- Feeds, each read once for all of its subscribers ---


Json = dict[str, Any]
Cursor = Any
"""A feed's own note of what a subscriber has seen; None for one that has seen nothing."""


@dataclass(frozen=True)
class Frame:
    """A message of a feed; with a payload it is sent in binary. Made by `frame`."""

    kind: str
    data: Json
    payload: bytes | None = None


FrameKind = Literal[
    "clusters", "operations", "runs", "state", "rows", "chat", "trouble", "fine", "error", "pong"
]


def frame(kind: FrameKind, data: Wire, payload: bytes | None = None) -> Frame:
    """Return a message. Raises TypeError when LivePayloads has another model for its kind."""
    expected = LivePayloads.model_fields[kind].annotation
    if type(data) is not expected:
        raise TypeError(f"a message {kind!r} carries {expected}, not {type(data)}")
    return Frame(kind, data.model_dump(mode="json"), payload)


class Feed(Protocol):
    """`poll` and `news` are called in worker threads, never two at once of one feed."""

    period_s: float
    """Seconds between two polls while there is a subscriber."""

    def poll(self) -> None:
        """Read the source. Subscribers are sent an LLMOpsError; what they have stays."""

    def news(self, cursor: Cursor, have: Json) -> tuple[list[Frame], Cursor]:
        """Return what a subscriber has not seen yet, and its new cursor.

        `have` is what a new subscriber already has from an earlier connection.
        """

    def close(self) -> None:
        """Release resources: nobody is subscribed any more."""


LINGER_S = 15.0
"""A page that is reloaded finds its feed still warm."""
MAX_WAIT_S = 10.0
"""Between polls of a feed in trouble."""
_LOG = logging.getLogger(__name__)

Factory = Callable[[str], Feed]


class Subscriber(Protocol):
    """The connection of a browser tab."""

    @property
    def is_ready(self) -> bool:
        """Return False while it has not taken what it was sent last."""

    def deliver(self, topic: str, frames: list[Frame]) -> None: ...


@dataclass
class _Subscription:
    have: Json
    cursor: Cursor = None
    reported: Trouble | None = None


@dataclass
class _Round:
    """The result of one round in a worker thread."""

    frames: list[tuple[Subscriber, list[Frame], Cursor]] = field(default_factory=list)
    trouble: Trouble | None = None


class _Channel:
    """A feed with its subscribers."""

    def __init__(self, topic: str, *, factory: Callable[[], Feed], executor: Executor) -> None:
        self._topic = topic
        self._make = factory
        self._executor = executor
        self._feed: Feed | None = None
        self._subscriptions: dict[Subscriber, _Subscription] = {}
        self._wake = asyncio.Event()
        self._empty_since_s: float | None = None
        self._wait_s = 0.0

    def join(self, subscriber: Subscriber, have: Json) -> None:
        self._subscriptions[subscriber] = _Subscription(have)
        self._wake.set()

    def leave(self, subscriber: Subscriber) -> None:
        self._subscriptions.pop(subscriber, None)

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Run until it has had no subscribers for a while."""
        loop = asyncio.get_running_loop()
        try:
            while self._is_wanted(loop.time()):
                self._wake.clear()
                if self._subscriptions:
                    ready = {
                        s: subscription
                        for s, subscription in self._subscriptions.items()
                        if s.is_ready
                    }
                    reported = await loop.run_in_executor(self._executor, self._round, ready)
                    self._hand_out(reported)
                await self._pause()
        finally:
            if self._feed is not None:
                self._executor.submit(self._feed.close)

    def _is_wanted(self, now_s: float) -> bool:
        if self._subscriptions:
            self._empty_since_s = None
        elif self._empty_since_s is None:
            self._empty_since_s = now_s
        return self._empty_since_s is None or now_s - self._empty_since_s < LINGER_S

    def _round(self, ready: dict[Subscriber, _Subscription]) -> _Round:
        result = _Round()
        result.trouble = self._guarded(self._look)
        if self._feed is not None:
            news = partial(self._gather, self._feed, ready, result)
            result.trouble = self._guarded(news) or result.trouble
        return result

    def _look(self) -> None:
        if self._feed is None:
            self._feed = self._make()
        self._feed.poll()

    @staticmethod
    def _gather(feed: Feed, ready: dict[Subscriber, _Subscription], result: _Round) -> None:
        for subscriber, subscription in ready.items():
            frames, cursor = feed.news(subscription.cursor, subscription.have)
            result.frames.append((subscriber, frames, cursor))

    def _guarded(self, work: Callable[[], None]) -> Trouble | None:
        try:
            work()
        except LLMOpsError as error:
            return trouble(error)
        except Exception as error:
            # A feed must never end silently: the page says that it stands, the log why.
            _LOG.exception("feed %s", self._topic)
            return Trouble(message=repr(error), remedy="see the log of the Jupyter server")
        return None

    def _hand_out(self, result: _Round) -> None:
        for subscriber, frames, cursor in result.frames:
            subscription = self._subscriptions.get(subscriber)
            if subscription is None:
                continue  # It left meanwhile.
            subscription.cursor = cursor
            if frames:
                subscriber.deliver(self._topic, frames)
        for subscriber, subscription in self._subscriptions.items():
            if subscription.reported != result.trouble:
                subscription.reported = result.trouble
                subscriber.deliver(self._topic, [_trouble_frame(result.trouble)])
        period_s = self._feed.period_s if self._feed is not None else 1.0
        self._wait_s = (
            min(2 * max(self._wait_s, period_s), MAX_WAIT_S) if result.trouble else period_s
        )

    async def _pause(self) -> None:
        wait_s = self._wait_s if self._subscriptions else 1.0
        try:
            await asyncio.wait_for(self._wake.wait(), wait_s)
        except TimeoutError:
            return


class Hub:
    """Makes a channel when its first subscriber comes."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._factories: dict[str, Factory] = {}
        self._channels: dict[str, _Channel] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def register(self, pattern: str, factory: Factory) -> None:
        """Register a feed.

        A pattern that ends in `/` matches all topics below it; the factory gets the rest.
        """
        self._factories[pattern] = factory

    def knows(self, topic: str) -> bool:
        return self._factory(topic) is not None

    def subscribe(self, topic: str, subscriber: Subscriber, have: Json) -> None:
        """Subscribe to a topic, from the event loop only.

        Raises KeyError for an unregistered topic.
        """
        factory = self._factory(topic)
        if factory is None:
            raise KeyError(topic)
        self._loop = asyncio.get_running_loop()
        if topic not in self._channels:
            channel = _Channel(topic, factory=factory, executor=self._executor)
            self._channels[topic] = channel
            self._tasks[topic] = self._loop.create_task(self._serve(topic, channel))
        self._channels[topic].join(subscriber, have)

    def unsubscribe(self, topic: str, subscriber: Subscriber) -> None:
        if topic in self._channels:
            self._channels[topic].leave(subscriber)

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber whose connection is gone."""
        for channel in self._channels.values():
            channel.leave(subscriber)

    def wake(self, topic: str) -> None:
        """Look now instead of at the next period. From any thread."""
        loop, channel = self._loop, self._channels.get(topic)
        if loop is not None and channel is not None and not loop.is_closed():
            loop.call_soon_threadsafe(channel.wake)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _serve(self, topic: str, channel: _Channel) -> None:
        try:
            await channel.run()
        finally:
            if self._channels.get(topic) is channel:
                del self._channels[topic], self._tasks[topic]

    def _factory(self, topic: str) -> Callable[[], Feed] | None:
        head, slash, rest = topic.partition("/")
        factory = self._factories.get(head + slash)
        return None if factory is None or (slash and not rest) else lambda: factory(rest)


def _trouble_frame(reported: Trouble | None) -> Frame:
    return frame("fine", Nothing()) if reported is None else frame("trouble", reported)
