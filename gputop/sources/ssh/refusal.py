"""What is answered where nobody can do what is asked: on a host with nvidia-smi and ps alone."""

from __future__ import annotations

from gputop.model.machine.detail import ProcessDetail, ProcessStack
from gputop.model.machine.probed import Probed
from gputop.model.machine.signals import Target, Verdict
from gputop.protocol.messages import AnsweredRequest, Detail, Probe, Reply, Signal, Stack

REFUSED = "only nvidia-smi and ps are read on this host: install gputop or Python 3.10 there"


def refusal(request: AnsweredRequest) -> Reply:
    """Return the reply of such a host; where a screen waits for an answer it is one."""
    if isinstance(request, Signal):
        verdicts = tuple(_verdict(request, target) for target in request.targets)
        return Reply(request=request.id, verdicts=verdicts)
    if isinstance(request, Detail):
        unreadable = ProcessDetail(request.pid, request.start_time, missing="unreadable")
        return Reply(request=request.id, detail=unreadable)
    if isinstance(request, Stack):
        stack = ProcessStack(request.pid, request.start_time, problem=REFUSED)
        return Reply(request=request.id, stack=stack)
    if isinstance(request, Probe):
        values = (request.value, None)
        probed = tuple(Probed(None, REFUSED, value, request.order) for value in values)
        return Reply(request=request.id, probed=probed)
    return Reply(request=request.id, error=REFUSED)


def _verdict(order: Signal, target: Target) -> Verdict:
    return Verdict(
        order=order.id,
        pid=target.pid,
        start_time=target.start_time,
        signal=order.number,
        outcome="refused",
        words=REFUSED,
    )
