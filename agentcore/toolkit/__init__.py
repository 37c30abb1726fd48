"""The built-in tools: bash, read, write and edit."""

from __future__ import annotations

import os

from agentcore.toolkit._truncate import Truncation
from agentcore.toolkit.bash import BashExecution, BashPrepare, BashToolDetails, BashToolOptions, create_bash_tool
from agentcore.toolkit.edit import Edit, EditToolDetails, EditToolInput, EditToolOptions, create_edit_tool
from agentcore.toolkit.read import (
    ReadImageProcessor,
    ReadImageProcessorResult,
    ReadPrepare,
    ReadToolDetails,
    ReadToolInput,
    ReadToolOptions,
    create_read_tool,
)
from agentcore.toolkit.write import WriteToolInput, WriteToolOptions, create_write_tool
from agentcore.tools import AgentTool

__all__ = [
    "BashExecution",
    "BashPrepare",
    "BashToolDetails",
    "BashToolOptions",
    "Edit",
    "EditToolDetails",
    "EditToolInput",
    "EditToolOptions",
    "ReadImageProcessor",
    "ReadImageProcessorResult",
    "ReadPrepare",
    "ReadToolDetails",
    "ReadToolInput",
    "ReadToolOptions",
    "Truncation",
    "WriteToolInput",
    "WriteToolOptions",
    "coding_tools",
    "create_bash_tool",
    "create_edit_tool",
    "create_read_tool",
    "create_write_tool",
]


def coding_tools(cwd: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> list[AgentTool]:
    """Return the four tools, working in the folder `cwd`; with a `root`, their paths may not leave it.

    The root confines paths, not what a command of the bash tool does: leave that tool out where it matters.
    """
    return [
        create_bash_tool(BashToolOptions(cwd=cwd, root=root)),
        create_read_tool(ReadToolOptions(cwd=cwd, root=root)),
        create_write_tool(WriteToolOptions(cwd=cwd, root=root)),
        create_edit_tool(EditToolOptions(cwd=cwd, root=root)),
    ]
