"""One evaluation by lm-eval, for `throughput.py`; runs in a virtual environment of its own.

    python throughput_lm_eval.py URL IN_FLIGHT SAMPLES

Thirty questions, each asked SAMPLES / 30 times, the answer compared as a string; logs and results as by default.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

QUESTIONS = 30
PROMPT = "[q{}] Which integer is meant?\nPlease reason step by step, and put your final answer within \\boxed{{}}."


def evaluate(url, in_flight, samples, folder):
    os.environ |= {"OPENAI_API_KEY": "none", "HF_DATASETS_OFFLINE": "1", "HF_HOME": folder}
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    questions = Path(folder, "questions.jsonl")
    questions.write_text("\n".join(json.dumps({"q": PROMPT.format(i), "a": "42"}) for i in range(QUESTIONS)) + "\n")
    task = {
        "task": "whole_numbers",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(questions)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{q}}",
        "doc_to_target": "{{a}}",
        "repeats": samples // QUESTIONS,
        "generation_kwargs": {"until": [], "do_sample": True, "temperature": 0.6, "top_p": 0.95, "max_gen_toks": 32768},
        "filter_list": [{"name": "first", "filter": [{"function": "take_first"}]}],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    tracker = EvaluationTracker(output_path=folder)
    model = f"model=m,base_url={url}/chat/completions,num_concurrent={in_flight},max_retries=3,tokenized_requests=False"
    results = simple_evaluate(
        model="local-chat-completions",
        model_args=model,
        tasks=[task],
        task_manager=TaskManager(),
        apply_chat_template=True,
        log_samples=True,
        evaluation_tracker=tracker,
        bootstrap_iters=0,
    )
    logged = results.pop("samples")["whole_numbers"]
    assert sum(len(sample["resps"][0]) for sample in logged) == samples
    tracker.save_results_aggregated(results=results, samples={"whole_numbers": logged})
    tracker.save_results_samples(task_name="whole_numbers", samples=logged)


if __name__ == "__main__":
    url, in_flight, samples = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        evaluate(url, int(in_flight), int(samples), folder)
