"""Keeping many wikis' indexes at their HEAD: schedule, fair turns, jobs."""

from wikiholt.keeper.entries import Activity, Counters, Finding, Pace, Standing
from wikiholt.keeper.jobs import Job, JobState
from wikiholt.keeper.keeper import Keeper

__all__ = ["Activity", "Counters", "Finding", "Job", "JobState", "Keeper", "Pace", "Standing"]
