"""What is answered where nobody can do what is asked: on a host with nvidia-smi and ps alone."""

from __future__ import annotations

from gputop.model.machine.detail import ProcessDetail, ProcessStack
from gputop.model.machine.probed import Probed
from gputop.model.machine.signals import Target, Verdict
from gputop.protocol.messages import Detail, Probe, Question, Reply, Signal, Stack

REFUSED = "only nvidia-smi and ps are read on this host: install gputop or Python 3.10 there"


def refusal(question: Question) -> Reply:
    """Return the reply of such a host; where a screen waits for an answer it is one."""
    if isinstance(question, Signal):
        verdicts = tuple(_verdict(question, target) for target in question.targets)
        return Reply(request=question.id, verdicts=verdicts)
    if isinstance(question, Detail):
        unreadable = ProcessDetail(question.pid, question.start_time, missing="unreadable")
        return Reply(request=question.id, detail=unreadable)
    if isinstance(question, Stack):
        stack = ProcessStack(question.pid, question.start_time, problem=REFUSED)
        return Reply(request=question.id, stack=stack)
    if isinstance(question, Probe):
        values = (question.value, None)
        probed = tuple(Probed(None, REFUSED, value, question.order) for value in values)
        return Reply(request=question.id, probed=probed)
    return Reply(request=question.id, error=REFUSED)


def _verdict(order: Signal, target: Target) -> Verdict:
    return Verdict(
        order=order.id,
        pid=target.pid,
        start_time=target.start_time,
        signal=order.number,
        outcome="refused",
        words=REFUSED,
    )
