"""The SQL by which people read a run: sums over its trials, and the facts that a rubric may use."""

from adaptive_eval.machine.charges import ChargeKind

GRADED = "state IN ('done', 'ungraded')"
"""Trials that have been graded, whether or not the grader failed."""
ANSWERED = "state != 'reserved'"
"""Trials whose answer is stored."""
ANSWERED_MODELS = f"SELECT DISTINCT model FROM trials WHERE {ANSWERED}"
ROWS_PER_READ = 200_000
"""Rows that are grouped at once: so many fit in memory."""

LAST = "SELECT coalesce(max(seq), 0) FROM trials"
# by the index on model and question all of it would be read for a few new trials
SUMS = f"""
SELECT model, coalesce(replica, ''), count(*), coalesce(sum(attempts - 1), 0), coalesce(sum(prompt_tokens), 0),
    coalesce(sum(completion_tokens), 0), coalesce(sum(latency), 0.0), count(ttft), coalesce(sum(ttft), 0.0),
    sum(tokens + v_tokens), sum(usd + v_usd), sum(gpu_seconds + v_gpu_seconds), coalesce(sum(cached_tokens), 0),
    max(seq), max(at)
FROM trials NOT INDEXED WHERE seq > ? AND seq <= ? AND {GRADED} GROUP BY model, 2 ORDER BY model, 2
"""
WAITING = """
SELECT model, count(*), sum(tokens), sum(usd), sum(gpu_seconds), min(seq) FROM trials NOT INDEXED
WHERE seq >= ? AND state = 'judging' GROUP BY model
"""
# one by one: grouping millions of rows in SQLite takes longer than counting them in Python
CATEGORIES = "SELECT model, question, category FROM trials NOT INDEXED WHERE seq > ? AND category IS NOT NULL"
EXTENTS = (
    "SELECT model, question, max(number) + 1 FROM trials "
    f"WHERE {ANSWERED} AND seq <= ? AND round <= ? GROUP BY model, question"
)
TIME_OUTS = f"""
SELECT model, round, sum(flags LIKE '%timed_out%') AS late, count(*) FROM trials NOT INDEXED WHERE {ANSWERED}
GROUP BY model, round HAVING late > 0
"""
CHARGES = """
SELECT max(seq), max(at), kind, what, model, sum(number), sum(tokens), sum(usd), sum(gpu_seconds), estimated
FROM charges GROUP BY kind, what, model, estimated ORDER BY 1
"""
FACTS = """
SELECT model, question, number, round, category, latency, usd, coalesce(cached_tokens, 0), signals, flags,
    finish_reason, prompt_tokens, completion_tokens, completion_bpt, prompt_bpt
FROM trials NOT INDEXED WHERE category IS NOT NULL ORDER BY seq
"""
_NUMBER = "json_extract(signals, '$.{}')"
_JUDGE_TOTALS = [
    f"coalesce(sum({_NUMBER.format(f'judge_{name}')}), 0.0)"
    for name in ("prompt_tokens", "completion_tokens", "usd", "gpu_seconds")
]
_IS_JUDGED = "json_type(signals, '$.judge_prompt_tokens') IS NOT NULL"
JUDGE_USE = f"SELECT count(*), {', '.join(_JUDGE_TOTALS)} FROM trials WHERE {_IS_JUDGED}"
COMPARISONS = (
    f"SELECT {_NUMBER.format('order_dependent')}, {_NUMBER.format('prefers_first')}, count(*) FROM trials "
    "WHERE json_type(signals, '$.prefers_first') IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
)
GRADING_USES = f"""
SELECT model, category IS NOT NULL, count(*), sum(v_tokens), sum(v_usd), sum(v_gpu_seconds) FROM trials
WHERE {GRADED} AND v_tokens + v_usd + v_gpu_seconds > 0 GROUP BY 1, 2
UNION ALL
SELECT model, 0, sum(number), sum(tokens), sum(usd), sum(gpu_seconds) FROM charges
WHERE kind = '{ChargeKind.WASTED}' AND what = 'verdict' GROUP BY 1
"""
