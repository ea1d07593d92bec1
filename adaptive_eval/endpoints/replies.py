"""Replies to the requests of one model: answers, errors that are answers, and failures."""

from adaptive_eval.endpoints.answers import AnswerReader, ResponseOrigin, answers_without_text
from adaptive_eval.endpoints.client import Caller, Reply
from adaptive_eval.endpoints.failures import error_signal
from adaptive_eval.endpoints.servers import IdentifiedServers, read_fingerprint, read_model_name
from adaptive_eval.endpoints.types import KEEP_TOKENS, Answer, EndpointConfig, Prompt, Sampling


class ReplyReader:
    """Reads the replies to one model's requests."""

    def __init__(self, config: EndpointConfig, sampling: Sampling, caller: Caller, servers: IdentifiedServers) -> None:
        keeps = sampling.logprobs == KEEP_TOKENS
        longest = sampling.longest_answer
        self._answers = AnswerReader(config, caller.secrets, longest, servers.note, keeps_tokens=keeps)
        self._max_tokens = sampling.max_tokens
        self._caller = caller
        self._servers = servers

    def answers(self, reply: Reply, prompt: Prompt, seeds: range, origin: ResponseOrigin) -> list[Answer]:
        """The answers for the first seeds; raises `Failure` or `Refusal` if the reply has none."""
        if reply.status == 200:
            self._servers.note_name(read_model_name(reply.payload))
            self._servers.note_fingerprint(origin.replica, read_fingerprint(reply.payload))
            return self._answers.answers(reply.payload, prompt, seeds, origin)
        signal = error_signal(
            reply.status,
            reply.body,
            reply.headers,
            max_tokens=self._max_tokens,
            secrets=self._caller.secrets,
            unauthorized=self._caller.unauthorized,
        )
        return answers_without_text(signal, seeds, origin)
