"""The output of `python -m bench.profile`, read from py-spy's flame graphs."""

from bench.profile import Share, heaviest

#: As written by py-spy 0.4, which lists a function once for each call path.
PICTURE = """
<g><title>all (200 samples, 100%)</title><rect x="0.0%"/></g>
<g><title>main (payintent/cli/__init__.py:20) (199 samples, 99.50%)</title></g>
<g><title>get_quotes (payintent/checkout/routes.py:41) (60 samples, 30.00%)</title></g>
<g><title>get_quotes (payintent/checkout/routes.py:44) (1 sample, 0.50%)</title></g>
<g><title>Batcher.&lt;a&gt;.run (/x/payintent/db/batcher.py:7) (80 samples, 40%)</title></g>
<g><title>app (starlette/routing.py:660) (1,000 samples, 50.00%)</title></g>
"""


def test_service_functions_are_listed_by_processor_time() -> None:
    assert heaviest(PICTURE) == [
        Share("Batcher.<a>.run (db/batcher.py)", 40.0),
        Share("get_quotes (checkout/routes.py)", 30.5),
    ]


def test_a_flame_graph_without_samples_lists_nothing() -> None:
    assert heaviest("<svg></svg>") == []
