"""Conversations that last: append-only session files that are trees with a current leaf."""

from agentcore.sessions._files import session_path
from agentcore.sessions.jsonl import Session
from agentcore.sessions.tree import SessionEntry, SessionProblem

__all__ = ["Session", "SessionEntry", "SessionProblem", "session_path"]
