"""Approve tool calls with buttons in a notebook.

A button is pressed on the main thread, so the main thread must be free while a hook waits for it. `Agent.stream` runs
the loop and its hooks on a background thread: the cell ends at once, and the buttons below it work. In a notebook,
with `ipywidgets` installed, call `start(agent, show_buttons)` and keep what it returns; run as a script, this file
presses the buttons itself.
"""

import threading
from queue import SimpleQueue

from agentcore import Agent, AgentTool, allow, approvals, deny
from agentcore.testing import call, reply, scripted, scripted_model


class Question:
    """A call that waits for yes or no."""

    def __init__(self, context) -> None:
        self.text = f"Run {context.tool_call.name} with {context.args}?"
        self.answered = threading.Event()
        self.yes = False

    def answer(self, yes: bool) -> None:
        """Say yes or no; for the callback of a button."""
        self.yes = yes
        self.answered.set()


def show_buttons(question: Question) -> None:
    """Show a question with two buttons below the cell."""
    import ipywidgets
    from IPython.display import display

    buttons = [ipywidgets.Button(description=text) for text in ("Yes", "No")]
    for button in buttons:
        button.on_click(lambda pressed: question.answer(pressed.description == "Yes"))
    display(ipywidgets.VBox([ipywidgets.Label(question.text), ipywidgets.HBox(buttons)]))


def start(agent: Agent, show, prompt: str = "Tidy up."):
    """Run in the background; every tool call is shown and waits for its answer, or for an abort."""

    def ask(context, signal):
        question = Question(context)
        show(question)
        if not approvals.wait(question.answered, signal):
            return deny("nobody answered")
        return allow() if question.yes else deny("the user pressed No")

    agent.before_tool_call = ask
    return agent.stream(prompt)


def main() -> None:
    """Press Yes for the first call and No for the second, on the main thread, while the run waits."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    delete = AgentTool("delete", "Delete", "Delete a file.", schema, lambda call_id, params, *rest: "deleted")
    wanted = reply(call("delete", path="old.log"), call("delete", path="thesis.tex"))
    agent = Agent(scripted_model(), tools=[delete], stream_fn=scripted(wanted, "That is all."))

    shown: SimpleQueue[Question] = SimpleQueue()
    stream = start(agent, shown.put)
    for yes in (True, False):
        question = shown.get()
        print(question.text, "yes" if yes else "no")
        question.answer(yes)
    for message in stream.result():
        print(f"  {message.role}: {getattr(message, 'text', '')}")


if __name__ == "__main__":
    main()
