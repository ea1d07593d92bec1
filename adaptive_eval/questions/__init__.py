"""Questions: what they are, where they are read from, and the section of the configuration that says so."""

from adaptive_eval.questions.load import load_questions, repeated_questions
from adaptive_eval.questions.types import Question, QuestionsConfig

__all__ = ["Question", "QuestionsConfig", "load_questions", "repeated_questions"]
