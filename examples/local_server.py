"""Ask a server on your own machine that speaks OpenAI's Chat Completions: Ollama, llama.cpp, vLLM, LM Studio …

    python examples/local_server.py http://127.0.0.1:11434/v1 qwen3 "Why is the sky blue?"

Without arguments it asks the built-in demo model, which is such a server too.
"""

import sys

from agentcore import Agent, Model
from agentcore.testing import DemoServer


def ask(model: Model, question: str) -> int:
    """Print the answer, or the one line that says what went wrong."""
    message = Agent(model).prompt(question)
    print(message.text or message.error_message)
    if message.usage is not None:
        print(f"({message.usage.input} tokens in, {message.usage.output} out)")
    return 1 if message.error else 0


def main(arguments: list[str]) -> int:
    """Ask the server that the arguments name."""
    if arguments:
        base_url, name, *question = arguments
        # No key: most local servers want none. `api_key` would go into `AgentLoopConfig`.
        return ask(Model(name, base_url=base_url), " ".join(question) or "Hello!")
    with DemoServer() as server:
        return ask(Model("demo", base_url=server.model.base_url), "Hello!")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
