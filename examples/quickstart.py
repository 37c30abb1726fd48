"""An agent that lists the current directory and reads the first file in it.

With OPENAI_API_KEY set it asks OpenAI (OPENAI_MODEL names the model); with OPENAI_BASE_URL set, any server that
speaks the same API. With neither it asks the built-in demo model, which follows a few rules over a real HTTP stream.
"""

import os
from contextlib import ExitStack

from agentcore import (
    AgentContext,
    AgentLoopConfig,
    AssistantMessage,
    MessageEndEvent,
    MessageUpdateEvent,
    Model,
    RequestRetryEvent,
    TextDeltaEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    run_agent_loop,
)
from agentcore.testing import DemoServer
from agentcore.toolkit import create_bash_tool, create_read_tool

QUESTION = "List the files in the current directory and read the first one"


def choose_model(stack: ExitStack) -> Model:
    """Return the model that the environment asks for, or the demo."""
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
        return Model(
            os.environ.get("OPENAI_MODEL", "gpt-5-mini"),
            provider="openai",
            base_url=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
        )
    return stack.enter_context(DemoServer()).model


def show(event: object) -> None:
    """Print what happens, as it happens."""
    match event:
        case MessageUpdateEvent(assistant_message_event=TextDeltaEvent(delta=delta)):
            print(delta, end="", flush=True)
        case MessageEndEvent(message=AssistantMessage() as message):
            print()
            if message.error_message:
                print(f"The model failed: {message.error_message}")
        case ToolExecutionStartEvent(tool_name=name, args=args):
            print(f"→ {name} {args}")
        case ToolExecutionEndEvent(result=result, is_error=is_error):
            lines = "".join(getattr(block, "text", "") for block in result.content).splitlines()
            for line in lines[:5]:
                print(f"  {'!' if is_error else '|'} {line}")
            if len(lines) > 5:
                print(f"  | … {len(lines) - 5} more lines")
        case RequestRetryEvent(delay=delay, reason=reason):
            print(f"(trying again in {delay:.1f} s: {reason})")


def main() -> int:
    """Ask, show, and say which model answered."""
    with ExitStack() as stack:
        model = choose_model(stack)
        context = AgentContext(
            system_prompt="You are a helpful assistant with access to the file system.",
            tools=[create_bash_tool(), create_read_tool()],
        )
        print(f"> {QUESTION}\n")
        messages = run_agent_loop(QUESTION, context, AgentLoopConfig(model=model), show)
    answer = messages[-1]
    print(f"\nAnswered by {model.name} ({model.provider}/{model.id}).")
    return 1 if isinstance(answer, AssistantMessage) and answer.stop_reason in ("error", "aborted") else 0


if __name__ == "__main__":
    raise SystemExit(main())
