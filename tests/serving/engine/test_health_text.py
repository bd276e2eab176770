"""What is read of an engine's metrics, next to prometheus_client's own reading of the same text."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from serving.engine.probe import HEALTH_METRICS, EngineHealth, read_health

OTHERS = ("vllm:num_requests_running_total", "vllm:prompt_tokens", "python_info", "x")
LABEL = st.text('ab"\\{}, =', max_size=6)
SAMPLES = st.lists(
    st.tuples(
        st.sampled_from((*HEALTH_METRICS, *OTHERS)),
        st.dictionaries(
            st.sampled_from(("engine", "model_name", "finished_reason")), LABEL, max_size=2
        ),
        st.sampled_from((None, "deferred", "capacity")),
        st.integers(0, 10**9),
    ),
    max_size=12,
)


def line(name: str, labels: dict[str, str], reason: str | None, value: int) -> str:
    every = labels | ({"reason": reason} if reason else {})
    escaped = {key: one.replace("\\", r"\\").replace('"', r"\"") for key, one in every.items()}
    inner = ",".join(f'{key}="{one}"' for key, one in escaped.items())
    return f"{name}{{{inner}}} {float(value)}" if every else f"{name} {float(value)}"


def slowly(text: str) -> EngineHealth | None:
    """Read the whole text, as any scraper does."""
    sums, caches, is_any = dict.fromkeys(HEALTH_METRICS, 0.0), 0, False
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            is_any |= sample.name in sums
            if sample.name in sums and sample.labels.get("reason") in (None, "deferred"):
                sums[sample.name] += sample.value
                caches += sample.name == "vllm:kv_cache_usage_perc"
    if not is_any:
        return None
    running, waiting, prompt, made, usage, cached, requests, deferred = sums.values()
    return EngineHealth(
        *(int(running), int(waiting), int(prompt), int(made), usage / max(1, caches)),
        cached_tokens=int(cached),
        requests=int(requests),
        deferred=int(deferred),
    )


@given(SAMPLES)
def test_an_engines_health_is_what_any_reader_of_its_metrics_finds(
    samples: list[tuple[str, dict[str, str], str | None, int]],
) -> None:
    text = "# HELP x about\n# TYPE x gauge\n" + "".join(line(*one) + "\n" for one in samples)
    assert read_health(text) == slowly(text)
