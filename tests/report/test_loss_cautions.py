"""What is said of answers that never came: what the caps count for them, and nothing else."""

from adaptive_eval.notes import AnswersLost, ServerLaunched
from adaptive_eval.report.warnings import loss_cautions


def test_gpu_time_is_told_where_caps_count_it_by_requests_and_not_where_servers_are_held() -> None:
    lost = [AnswersLost(name, 8, 7816, 0.0, 1800.0, killed=True) for name in ("ada", "bob")]
    lost.append(AnswersLost("cyd", 2, 0, 0.0, 1800.0))
    texts = {
        caution.model: caution.text for caution in loss_cautions([*lost, ServerLaunched("bob"), ServerLaunched("cyd")])
    }
    assert "7,816 tokens and 0.5 GPU hours" in texts["ada"]
    assert "7,816 tokens for them" in texts["bob"] and "GPU" not in texts["bob"]
    assert texts["cyd"] == "2 answers requested, but never received"
