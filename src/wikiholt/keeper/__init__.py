"""Keeping many wikis' indexes at their HEAD: schedule, fair turns, jobs."""

from wikiholt.keeper.entries import WikiActivity, SchedulerCounters, DiscoveredRepository, SchedulerConfig, SyncState
from wikiholt.keeper.jobs import ReindexJob, ReindexState
from wikiholt.keeper.keeper import Scheduler

__all__ = ["WikiActivity", "SchedulerCounters", "DiscoveredRepository", "ReindexJob", "ReindexState", "Scheduler", "SchedulerConfig", "SyncState"]
