"""Questions, their sources, and their section of the configuration."""

from adaptive_eval.questions.load import load_questions, repeated_questions
from adaptive_eval.questions.types import Question, QuestionsConfig

__all__ = ["Question", "QuestionsConfig", "load_questions", "repeated_questions"]
