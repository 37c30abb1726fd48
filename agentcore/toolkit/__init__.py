"""The built-in tools: bash and read."""

from agentcore.toolkit._truncate import Truncation
from agentcore.toolkit.bash import BashExecution, BashPrepare, BashToolDetails, BashToolOptions, create_bash_tool
from agentcore.toolkit.read import (
    ReadImageProcessor,
    ReadImageProcessorResult,
    ReadPrepare,
    ReadToolDetails,
    ReadToolInput,
    ReadToolOptions,
    create_read_tool,
)

__all__ = [
    "BashExecution",
    "BashPrepare",
    "BashToolDetails",
    "BashToolOptions",
    "ReadImageProcessor",
    "ReadImageProcessorResult",
    "ReadPrepare",
    "ReadToolDetails",
    "ReadToolInput",
    "ReadToolOptions",
    "Truncation",
    "create_bash_tool",
    "create_read_tool",
]
