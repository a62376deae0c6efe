"""The profiles of a run's steps, for its panel and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import ProfileEvent
from llmops_kernel.metrics.profile import PHASE, REQUEST_PHASE
from llmops_kernel.metrics.system import StackGroup
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.panel import PanelProfile, PanelProfiles, PanelTable, ProfileDetail
from llmops_kernel.views.system import group_table, stacks_of

MOST_LISTED = 20
_NOW = {PHASE: "Profiling", REQUEST_PHASE: "Waiting for the run to profile"}
PROFILED_STEPS = 3
"""Steps of a profile that a panel asks for."""
_USUAL = 50
"""Steps before a profile, whose median is what a step usually takes."""


def panel_profiles(view: RunView) -> PanelProfiles:
    """Return the profiles, the newest last, and what is profiled now."""
    profiles, now = view.profiles, view.profiling
    first = max(0, len(profiles) - MOST_LISTED)
    return PanelProfiles(
        can=kind_named(view.kind).is_profiled and view.state == "RUNNING",
        now="" if now is None else f"{_NOW[now.name]} {now.detail}…",
        done=[
            PanelProfile(
                number=number,
                title=title_of(each),
                first=each.first_step,
                last=each.last_step,
                note=overhead(view, each),
                path=path_of(view, each),
            )
            for number, each in enumerate(profiles[first:], start=first)
        ],
        operators=operator_table(profiles[-1]) if profiles else PanelTable(columns=[], rows=[]),
    )


def profile_detail(view: RunView, number: int) -> ProfileDetail | None:
    """Return one profile, counted from 0; None where there is none."""
    profiles = view.profiles
    if not 0 <= number < len(profiles):
        return None
    profile = profiles[number]
    return ProfileDetail(
        number=number,
        operators=operator_table(profile),
        calls=list(profile.calls),
        groups=_groups(profile.groups),
        stacks=stacks_of(profile.groups),
    )


def _groups(groups: Sequence[StackGroup]) -> PanelTable:
    return group_table(groups) if groups else PanelTable(columns=[], rows=[])


def title_of(profile: ProfileEvent) -> str:
    """Return `steps 12 to 14`, `step 12`."""
    first, last = profile.first_step, profile.last_step
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"


def operator_table(profile: ProfileEvent) -> PanelTable:
    """Return a row for each operator, those with most time of their own first."""
    on_gpu = any(row.self_device_s is not None for row in profile.operators)
    return PanelTable(
        columns=["operator", "calls", *(["GPU, ms"] if on_gpu else []), "CPU, ms"],
        rows=[
            [
                row.name,
                f"{row.calls:,}",
                *([_milliseconds(row.self_device_s)] if on_gpu else []),
                _milliseconds(row.self_cpu_s),
            ]
            for row in profile.operators
        ],
    )


def _milliseconds(time_s: float | None) -> str:
    return fmt.DASH if time_s is None else f"{1e3 * time_s:,.2f}"


def overhead(view: RunView, profile: ProfileEvent) -> str:
    """Return how long the steps took while they were profiled, and how long such steps take."""
    steps = view.steps if isinstance(view, TrainingView) else []
    usual = [
        step.step_time_s
        for step in steps
        if step.step < profile.first_step and step.step_time_s and not step.profiled
    ][1:][-_USUAL:]
    taken = [
        step.step_time_s
        for step in steps
        if profile.first_step <= step.step <= profile.last_step and step.step_time_s
    ]
    words = f"The steps took {fmt.seconds(profile.time_in_steps_s)} while they were profiled"
    if usual and taken:
        each, before = sum(taken) / len(taken), median(usual)
        more = f"{fmt.step_time(each)} each, {each / before - 1:+.0%}"
        words += f" ({more} to the {fmt.step_time(before)} of steps before)"
    return f"{words}; their files took {fmt.seconds(profile.writing_s)}. They count in no speed."


def path_of(view: RunView, profile: ProfileEvent) -> str:
    """Return the folder of the timelines: the copy on this machine, where there is one."""
    copies = [e.path for e in view.outputs if e.copied_from == profile.path]
    return copies[-1] if copies else profile.path
