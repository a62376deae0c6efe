"""The long way to the API server: what arrives is the same, later."""

from __future__ import annotations

import time

from tests.k8s.standin.link import FarLink
from tests.k8s.standin.process import StandIn

FAR_S = 0.1


def test_a_request_costs_the_round_trips_of_its_protocol(standin: StandIn, namespace: str) -> None:
    with FarLink(standin.url, round_trip_s=FAR_S) as url, standin.client(base_url=url) as http:
        began_s = time.monotonic()
        assert http.get(f"/api/v1/namespaces/{namespace}").json()["metadata"]["name"] == namespace
        connected_s = time.monotonic()
        assert http.get(f"/api/v1/namespaces/{namespace}").status_code == 200
        # TCP, TLS and the request; then the request alone.
        assert connected_s - began_s >= 3 * FAR_S
        assert time.monotonic() - connected_s >= FAR_S


def test_a_large_body_arrives_whole(standin: StandIn, namespace: str) -> None:
    text = "x" * 900_000
    body = {"metadata": {"name": "big"}, "data": {"text": text}}
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with FarLink(standin.url, round_trip_s=0.02) as url, standin.client(base_url=url) as http:
        assert http.post(path, json=body).status_code == 201
        assert http.get(f"{path}/big").json()["data"]["text"] == text


def test_some_requests_fail(standin: StandIn, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    with standin.client() as http, standin.faulty("503", path=path, share=0.3):
        codes = [http.get(path).status_code for _ in range(60)]
    assert set(codes) == {200, 503}
