"""Cards that have experts in common begin each step together and wait for the last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from policies.serving.cluster import Node


class Lockstep(Node):
    """Cards that attend to their own requests and share the experts among them (data-parallel
    attention): a step of one is a step of all, whose tokens together choose the experts, and takes
    as long as the slowest. A card without requests waits (vLLM's would run an empty batch)."""

    def _advance(
        self, until_s: float, count: int, progress: Callable[[int, int], None] | None
    ) -> bool:
        now_s = min(replica.next_s for replica in self.replicas)
        if now_s >= until_s:
            return False
        cards = [card for card, each in enumerate(self.replicas) if each.next_s <= now_s]
        began = {card: self.replicas[card].begin(until_s) for card in cards}
        cards = [card for card in cards if not self.replicas[card].idles(began[card][0])]
        if not cards:
            return True
        chosen, begun = [self.replicas[card] for card in cards], [began[card] for card in cards]
        decoded = sum(step.decoded for step, _ in begun)
        chunked = sum(step.batched for step, _ in begun) - decoded
        steps = [
            step._replace(elsewhere=(decoded - step.decoded, chunked + step.decoded - step.batched))
            for step, _ in begun
        ]
        pairs = list(zip(chosen, steps, strict=True))
        seen = [replica.observe(step) for replica, step in pairs]
        rounds = min(each for each, _ in seen)
        own = [
            r.times(step, rounds, efficiency)
            for (r, step), (_, efficiency) in zip(pairs, seen, strict=True)
        ]
        total_s = np.max([times.total_s for times in own], axis=0)
        own = [each.delayed(total_s - each.total_s)._replace(total_s=total_s) for each in own]
        cuts = [r.cut(step, each, until_s) for (r, step), each in zip(pairs, own, strict=True)]
        times, end_s = min(cuts, key=lambda cut: len(cut[0].total_s))
        for card, step, each, (_, fitting) in zip(cards, steps, own, begun, strict=True):
            done = each.first(len(times.total_s))
            ended = self.replicas[card].end(step, fitting, done, end_s)
            self.busy_s[card] += float(done.total_s.sum())
            self.manager.ended(ended, end_s)
            if ended and progress is not None:
                progress(self._metrics.ended, count)
        for card, replica in enumerate(self.replicas):
            if card not in cards:
                replica.wait(end_s)
        return True
